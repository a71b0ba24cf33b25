"""Rows of groups are read back as they were written, and damaged ones are refused by name."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import MetadataDecodeError
from tierd.serve.kafka.groups.protocol.durable_group import StaticMember
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset
from tierd.serve.kafka.groups.storage.group_rows import (
    GroupRow,
    decode_group,
    decode_offset,
    decode_static,
    encode_group,
    encode_offset,
    encode_static,
)

_TIMES = st.integers(0, 2**62)
_SECONDS = st.integers(0, 2**31 - 1).map(lambda ms: ms / 1000)
ROWS = st.builds(
    GroupRow,
    group=st.text(),
    owner_id=st.integers(0, 2**31 - 1),
    session_id=st.uuids(),
    revision=st.integers(0, 2**62),
    generation=st.integers(0, 2**31 - 1),
    protocol_type=st.none() | st.text(),
    empty_since_ms=st.none() | _TIMES,
)
STATIC = st.builds(
    StaticMember,
    instance_id=st.text(),
    member_id=st.text(),
    client_id=st.text(),
    client_host=st.text(),
    session_timeout_s=_SECONDS,
    rebalance_timeout_s=_SECONDS,
    protocols=st.lists(st.tuples(st.text(), st.binary())).map(tuple),
)
OFFSETS = st.builds(
    GroupOffset,
    topic=st.text(),
    offset=st.integers(-1, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(),
    commit_ms=_TIMES,
    expire_ms=st.none() | _TIMES,
)


@given(ROWS)
def test_row_of_a_group_is_read_back(row: GroupRow) -> None:
    assert decode_group("key", encode_group(row)) == row


@given(STATIC)
def test_static_member_is_read_back(member: StaticMember) -> None:
    assert decode_static("key", encode_static(member)) == member


@given(OFFSETS)
def test_committed_offset_is_read_back(committed: GroupOffset) -> None:
    assert decode_offset("key", encode_offset(committed)) == committed


@pytest.mark.parametrize("decode", [decode_group, decode_static, decode_offset])
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: b"\1" + text.encode()))
def test_damaged_row_is_refused_by_name(decode: Callable[[str, bytes], object], content: bytes) -> None:
    with pytest.raises(MetadataDecodeError, match="the-key"):
        decode("the-key", content)


def test_row_with_an_impossible_field_is_refused() -> None:
    row = GroupRow(group="readers", owner_id=1, session_id=UUID(int=1), revision=1)
    for wrong in (b'"generation":4294967296', b'"generation":-1', b'"generation":"1"'):
        with pytest.raises(MetadataDecodeError, match="generation"):
            decode_group("the-key", encode_group(row).replace(b'"generation":0', wrong))
    static = encode_static(StaticMember(
        instance_id="i", member_id="m", client_id="c", client_host="h", session_timeout_s=1.0, rebalance_timeout_s=1.0,
        protocols=(("range", b"x"),),
    ))  # fmt: skip
    for wrong in (b'[["range","?"]]', b'[["range",1]]', b"[[]]", b"{}"):
        with pytest.raises(MetadataDecodeError, match="the-key"):
            decode_static("the-key", static.replace(b'[["range","eA=="]]', wrong))
