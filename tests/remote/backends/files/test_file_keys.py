from pathlib import PurePosixPath
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tierd.remote.backends.files.file_keys import (
    UPLOADS_FOLDER,
    key_of_path,
    key_of_upload,
    path_of_key,
    path_of_upload,
)

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)


@given(KEYS)
@example("../../etc/passwd")
@example("/etc/passwd")
@example("a//b/./../c")
@example(".")
@example("..")
@example("a\0b")
@example("%2e%2e/%/%25")
@example(f"{UPLOADS_FOLDER}/x")
def test_a_key_has_a_path_of_its_own_below_the_root(key: str) -> None:
    path = path_of_key(key)
    assert key_of_path(path) == key
    assert not path.is_absolute()
    assert not {"", ".", ".."} & set(path.parts)
    assert not any("\0" in part or part.startswith(".") for part in path.parts)


@given(st.uuids(), KEYS)
@example(UUID(int=1), "x" * 900)
@example(UUID(int=1), "a/" * 300)
@example(UUID(int=1), "ü" * 300)
def test_an_upload_tells_its_key_and_fits_into_file_names(upload_id: UUID, key: str) -> None:
    path = path_of_upload(upload_id, key)
    assert key_of_upload(path) == key
    assert path.parts[0].startswith(upload_id.hex)
    assert all(len(part.encode()) <= 255 and part not in {".", ".."} for part in path.parts)


@pytest.mark.parametrize(
    "key", ["cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/0000-AAAAAAAAAAAAAAAAAAAKvA.log", "a b/c=d,e"]
)
def test_the_keys_that_tierd_makes_are_their_own_paths(key: str) -> None:
    assert path_of_key(key) == PurePosixPath(key)


@pytest.mark.parametrize("name", ["check-0123", "lost+found", "0123.x", ""])
def test_a_file_that_is_no_upload_has_no_key(name: str) -> None:
    assert key_of_upload(PurePosixPath(name)) is None
