from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.log import MetaProperties, read_meta_properties
from tierd.log.files.disk import OsDisk
from tierd.log.files.meta_properties import encode_meta_properties, parse_meta_properties, write_meta_properties
from tierd.log.log_errors import CheckpointError

WRITTEN = (
    b"#\n#Sat Nov 21 09:15:31 UTC 2026\nnode.id=1\ndirectory.id=UbykAeNy4YGeW-3eXFz5Cw\nversion=1\ncluster.id=abc\\:d\n"
)


def test_meta_properties_of_a_broker_are_read(tmp_path: Path) -> None:
    assert read_meta_properties(tmp_path) is None
    (tmp_path / "meta.properties").write_bytes(WRITTEN)
    assert read_meta_properties(tmp_path) == MetaProperties("abc:d", 1, UUID("51bca401-e372-e181-9e5b-edde5c5cf90b"))


def test_version_0_is_read_with_broker_id_and_no_directory_id() -> None:
    assert parse_meta_properties(b"version=0\ncluster.id = x\nbroker.id: 7\n", name="f") == MetaProperties("x", 7, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version=1\n",
        b"cluster.id=x\nversion=2\n",
        b"cluster.id=x\nnode.id=one\n",
        b"cluster.id=x\ndirectory.id=short\n",
    ],
)
def test_damaged_meta_properties_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^f: "):
        parse_meta_properties(data, name="f")


@given(st.one_of(st.binary(max_size=100), st.binary(max_size=40).map(lambda tail: b"cluster.id=x\n" + tail)))
def test_any_bytes_of_meta_properties_are_parsed_or_refused(data: bytes) -> None:
    with suppress(CheckpointError):
        assert parse_meta_properties(data, name="f").cluster_id


def test_written_file_has_the_lines_of_a_broker_in_any_order(tmp_path: Path) -> None:
    meta = MetaProperties("abc:d", 1, UUID("51bca401-e372-e181-9e5b-edde5c5cf90b"))
    write_meta_properties(OsDisk(), tmp_path, meta, now_ms=1795252531000)
    written = (tmp_path / "meta.properties").read_bytes()
    assert sorted(written.splitlines()) == sorted(WRITTEN.splitlines())
    assert written.endswith(b"\n")
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_version_0_is_written_with_and_without_a_broker_id() -> None:
    assert b"\nbroker.id=7\n" in encode_meta_properties(MetaProperties("x", 7, None), now_ms=0, version=0)
    assert b"id=7" not in encode_meta_properties(MetaProperties("x", None, None), now_ms=0, version=0)
    with pytest.raises(ValueError, match="version 1, node id None"):
        encode_meta_properties(MetaProperties("x", None, None), now_ms=0)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.none() | st.integers(0, 2**31 - 1),
    st.none() | st.uuids(),
)
def test_any_identity_is_read_as_it_was_written(
    cluster_id: str, node_id: int | None, directory_id: UUID | None
) -> None:
    meta = MetaProperties(cluster_id, node_id, directory_id)
    for version in (0,) if node_id is None else (0, 1):
        assert parse_meta_properties(encode_meta_properties(meta, now_ms=0, version=version), name="f") == meta
