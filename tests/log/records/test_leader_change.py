import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.records.test_record_batch import one
from tierd.log import ControlRecordType
from tierd.log.records.leader_change import LeaderChange, encode_leader_change, parse_leader_change
from tierd.log.records.record import RecordError

WRITTEN_BY_3_9_2 = (
    "00000000000000000000004f0000000102caab75d7002000000000000001a1fd63b780000001a1fd63b780ffffffffffffffffffff"
    "ffffffff000000013a0000000800000002260000000000010200000001000200000001000000"
)

nodes = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=200).map(tuple)


def test_change_of_leader_is_encoded_as_by_a_broker() -> None:
    change = LeaderChange(1, voters=(1,), granting_voters=(1,))
    data = encode_leader_change(change, leader_epoch=1, timestamp_ms=1_795_252_533_120)
    assert data.hex() == WRITTEN_BY_3_9_2


@pytest.mark.spec("log-format REC-28")
@given(st.integers(0, 2**31 - 1), nodes, nodes)
def test_change_of_leader_is_decoded_with_its_voters(
    leader_id: int, voters: tuple[int, ...], granting_voters: tuple[int, ...]
) -> None:
    change = LeaderChange(leader_id, voters, granting_voters)
    found = one(encode_leader_change(change, leader_epoch=4, timestamp_ms=9, base_offset=77))
    assert (found.is_control, found.is_transactional, found.producer_id) == (True, False, -1)
    assert (found.control_type(), found.partition_leader_epoch) == (ControlRecordType.LEADER_CHANGE, 4)
    (record,) = found.records()
    assert (record.offset, parse_leader_change(record.value)) == (77, change)


@pytest.mark.spec("log-format REC-28")
def test_a_change_of_leader_without_leader_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="leader epoch"):
        encode_leader_change(LeaderChange(1, (1, 2, 3)), leader_epoch=-1, timestamp_ms=9)


def test_version_1_with_directories_of_the_voters_is_decoded() -> None:
    voter = struct.pack(">i", 5) + bytes(range(16)) + b"\x01\x07\x02xy"  # a tagged field that we do not know
    assert parse_leader_change(struct.pack(">hi", 1, 5) + b"\x02" + voter + b"\x01\x00") == LeaderChange(5, (5,))


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        struct.pack(">hi", -1, 1) + b"\x01\x01\x00",
        struct.pack(">hi", 0, 1),
        struct.pack(">hi", 0, 1) + b"\x02\x00",
        struct.pack(">hi", 0, 1) + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hi", 0, 1) + b"\xff\xff\xff\xff\xff\x01",
    ],
)
def test_a_damaged_change_of_leader_is_refused(value: bytes | None) -> None:
    with pytest.raises(RecordError):
        parse_leader_change(value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_change_of_leader_or_refused(data: bytes) -> None:
    with suppress(RecordError):
        parse_leader_change(data)
