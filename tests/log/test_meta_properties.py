from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import CheckpointError
from tierd.log import MetaProperties, read_meta_properties
from tierd.log.meta_properties import parse_meta_properties

WRITTEN = (
    b"#\n#Sat Nov 21 09:15:31 UTC 2026\nnode.id=1\ndirectory.id=UbykAeNy4YGeW-3eXFz5Cw\nversion=1\ncluster.id=abc\\:d\n"
)


def test_a_brokers_file_is_read(tmp_path: Path) -> None:
    assert read_meta_properties(tmp_path) is None
    (tmp_path / "meta.properties").write_bytes(WRITTEN)
    assert read_meta_properties(tmp_path) == MetaProperties("abc:d", 1, UUID("51bca401-e372-e181-9e5b-edde5c5cf90b"))


def test_the_older_form_names_the_broker() -> None:
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
def test_a_damaged_file_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^f: "):
        parse_meta_properties(data, name="f")


@given(st.one_of(st.binary(max_size=100), st.binary(max_size=40).map(lambda tail: b"cluster.id=x\n" + tail)))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with suppress(CheckpointError):
        assert parse_meta_properties(data, name="f").cluster_id
