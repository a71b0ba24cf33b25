"""Changes in place, in batches and in legacy entries."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coded import coded
from tests.log.batches import Row, batch, legacy, plain, wrapper
from tests.log.records.test_record_batch import A1, A8, inner, one, records
from tierd.errors import TierErrorCode
from tierd.log import BatchBuilder, Compression, NewRecord, Producer
from tierd.log.log_errors import AppendError
from tierd.log.records.batch_restamp import forget_producer, set_last_offset, set_leader_epoch, set_max_timestamp
from tierd.log.records.log_config import TimestampType

CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
ROWS: list[Row] = [(1000, b"k", b"v"), (999, None, b"w" * 500), (1005, b"k", None)]


@pytest.mark.spec("log-format REC-11")
@pytest.mark.parametrize("codec", list(Compression))
def test_new_last_offset_moves_every_record_and_keeps_the_checksum(codec: Compression) -> None:
    data = bytearray(batch(7, ROWS, codec=codec))
    before = data[12:]
    set_last_offset(data, 50)
    assert data[12:] == before
    assert [record.offset for record in records(bytes(data))] == [48, 49, 50]


def test_new_last_offset_of_a_batch_with_gaps_keeps_its_offset_span() -> None:
    data = bytearray(batch(7, ROWS, last_offset_delta=9))
    set_last_offset(data, 109)
    assert (one(bytes(data)).base_offset, one(bytes(data)).last_offset) == (100, 109)


def test_last_offset_that_moves_a_batch_below_offset_0_is_refused() -> None:
    data = bytearray(plain(0, 3))
    with pytest.raises(ValueError, match="cannot end at 1"):
        set_last_offset(data, 1)
    assert data == plain(0, 3)


@pytest.mark.spec("log-format REC-12")
def test_new_leader_epoch_keeps_the_checksum() -> None:
    data = bytearray(plain(0, 2))
    set_leader_epoch(data, 9)
    assert one(bytes(data)).partition_leader_epoch == 9
    assert data[:12] + data[16:] == plain(0, 2)[:12] + plain(0, 2)[16:]


@pytest.mark.spec("log-format REC-13")
@pytest.mark.spec("log-format REC-50")
def test_golden_batch_is_switched_to_log_append_time() -> None:
    data = bytearray.fromhex(A1)
    set_max_timestamp(data, LOG_APPEND, 2000)
    assert data.hex() == A8


@pytest.mark.spec("log-format REC-13")
@pytest.mark.parametrize("codec", list(Compression))
def test_switch_to_log_append_time_gives_each_record_its_timestamp(codec: Compression) -> None:
    data = bytearray(batch(7, ROWS, codec=codec))
    set_max_timestamp(memoryview(data), LOG_APPEND, 2000)
    assert [(r.timestamp_ms, r.timestamp_type) for r in records(bytes(data))] == [(2000, "LogAppendTime")] * 3
    set_max_timestamp(data, CREATE, 1005)
    assert bytes(data) == batch(7, ROWS, codec=codec)


def test_timestamp_that_is_already_set_changes_no_byte() -> None:
    data = bytearray(batch(7, ROWS))
    data[17] ^= 1
    before = bytes(data)
    set_max_timestamp(data, CREATE, 1005)
    assert data == before
    set_max_timestamp(data, CREATE, 1006)
    assert one(bytes(data)).max_timestamp_ms == 1006


@pytest.mark.spec("log-format REC-14")
def test_timestamp_type_has_no_member_for_none() -> None:
    with pytest.raises(ValueError, match="NoTimestampType"):
        TimestampType("NoTimestampType")
    assert set(TimestampType) == {CREATE, LOG_APPEND}


@pytest.mark.spec("log-format LEG-02")
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_new_last_offset_of_a_wrapper_moves_its_inner_records(codec: Compression) -> None:
    data = bytearray(wrapper(1, 2, inner(1, range(3)), codec=codec))
    set_last_offset(data, 10)
    assert [record.offset for record in records(bytes(data))] == [8, 9, 10]


@pytest.mark.spec("log-format LEG-05")
def test_wrapper_switched_to_log_append_time_gives_inner_records_its_timestamp() -> None:
    data = bytearray(wrapper(1, 10, inner(1, range(3))))
    crc = data[12:16]
    set_max_timestamp(data, LOG_APPEND, 7777)
    found = one(bytes(data))
    assert found.is_valid
    assert data[12:16] != crc
    assert {(r.timestamp_ms, r.timestamp_type) for r in found.records()} == {(7777, "LogAppendTime")}


@pytest.mark.spec("log-format LEG-06")
@pytest.mark.parametrize("timestamp_type", list(TimestampType))
def test_timestamp_of_a_magic_0_entry_is_refused(timestamp_type: TimestampType) -> None:
    data = bytearray(legacy(0, 5, b"k", b"v"))
    with pytest.raises(AppendError, check=coded(TierErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), match="timestamp"):
        set_max_timestamp(data, timestamp_type, 1)
    assert data == legacy(0, 5, b"k", b"v")


@pytest.mark.spec("log-format LEG-06")
@pytest.mark.parametrize("magic", [0, 1])
def test_leader_epoch_of_a_legacy_entry_is_refused(magic: int) -> None:
    with pytest.raises(AppendError, check=coded(TierErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), match="leader epoch"):
        set_leader_epoch(bytearray(legacy(magic, 5, b"k", b"v")), 1)


@pytest.mark.parametrize(
    "data", [b"", bytes(12), plain(0)[:-1], plain(0) + b"!", struct.pack(">qiib", 0, 30, 0, 2) + bytes(25)]
)
def test_change_of_bytes_that_are_not_one_whole_batch_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not one batch"):
        set_last_offset(bytearray(data), 1)


@given(
    st.integers(2, 2**63 - 1), st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1), st.sampled_from(TimestampType)
)
def test_new_offset_epoch_and_timestamp_are_decoded_as_they_were_set(
    offset: int, epoch: int, timestamp_ms: int, stamped_by: TimestampType
) -> None:
    data = bytearray(batch(7, ROWS))
    set_last_offset(data, offset)
    set_leader_epoch(data, epoch)
    set_max_timestamp(data, stamped_by, timestamp_ms)
    found = one(bytes(data))
    assert (found.last_offset, found.partition_leader_epoch, found.max_timestamp_ms) == (offset, epoch, timestamp_ms)
    assert found.timestamp_type == stamped_by.value


@pytest.mark.parametrize("codec", list(Compression))
def test_batch_without_its_producer_keeps_its_records_and_has_a_right_checksum(codec: Compression) -> None:
    """The delete horizon is the base of the timestamps, and stays it without its bit."""
    builder = BatchBuilder(
        base_offset=7,
        compression=codec,
        producer=Producer(5000, 3, 11),
        is_transactional=True,
        delete_horizon_ms=900,
    )
    for timestamp_ms, key, value in ROWS:
        builder.append(NewRecord(key, value, timestamp_ms))
    data = bytearray(builder.build())
    before = [(record.offset, record.timestamp_ms, record.key, record.value) for record in records(bytes(data))]
    forget_producer(data)
    after = one(bytes(data))
    assert after.is_valid
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (-1, -1, -1)
    assert (after.is_transactional, after.delete_horizon_ms, after.compression) == (False, None, codec)
    assert [(record.offset, record.timestamp_ms, record.key, record.value) for record in after.records()] == before


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_entry_has_no_producer_to_forget(magic: int) -> None:
    data = bytearray(legacy(magic, 0, b"k", b"v"))
    before = bytes(data)
    forget_producer(data)
    assert data == before
