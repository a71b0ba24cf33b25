import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import Row, batch, forged, legacy, plain
from tests.log.log_columns import iter_log_columns
from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.log import RecordBatch, iter_batches
from tierd.log.records.batch_builder import NewRecord, encode_batch
from tierd.log.records.compression import Compression, compress
from tierd.log.records.log_config import TimestampType
from tierd.log.records.record_columns import columns_of, iter_columns

payloads = st.one_of(st.none(), st.binary(max_size=40))
records = st.builds(
    NewRecord,
    key=payloads,
    value=payloads,
    timestamp_ms=st.integers(-1, 2**62),
    headers=st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple),
)

mostly_plain = st.sampled_from([Compression.NONE] * 4 + [Compression.LZ4])


def opened(data: bytes) -> RecordBatch:
    (found,) = iter_batches(data, name="orders-0")
    return found


@pytest.mark.spec("log-format REC-17")
@given(
    st.lists(records, min_size=1, max_size=20),
    st.sampled_from(list(Compression)),
    st.sampled_from(list(TimestampType)),
    st.integers(1, 7),
)
def test_columns_hold_the_same_values_as_records_decoded_one_by_one(
    written: list[NewRecord], codec: Compression, stamped_by: TimestampType, step: int
) -> None:
    found = opened(
        encode_batch(
            written,
            base_offset=2**40,
            compression=codec,
            timestamp_type=stamped_by,
            log_append_time_ms=77,
            leader_epoch=5,
        )
    )
    expected = list(found.records())
    columns = columns_of(found)
    assert list(columns) == expected
    assert columns.offsets() == [record.offset for record in expected]
    assert columns.timestamps_ms() == [record.timestamp_ms for record in expected]
    assert columns.values() == [record.value for record in expected]
    assert [record for some in iter_columns(found, step_records=step) for record in some] == expected


def test_a_batch_that_compaction_has_emptied_has_no_records() -> None:
    assert not len(columns_of(opened(batch(7, []))))
    assert [len(some) for some in iter_columns(opened(batch(7, [])))] == [0]


def test_timestamps_wrap_like_additions_of_java() -> None:
    rows: list[Row] = [(2**63 - 1, b"k", b"v")]
    data = bytearray(batch(0, [*rows, (0, b"k", b"v")]))
    data[27:35] = (-5).to_bytes(8, "big", signed=True)
    found = opened(forged(bytes(data)))
    assert columns_of(found).timestamps_ms() == [record.timestamp_ms for record in found.records()]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("count", [-1, 1, 3, 2**31 - 1])
def test_a_wrong_count_is_an_error_that_names_the_batch(codec: Compression, count: int) -> None:
    data = forged(batch(0, [(1, b"k", b"v"), (2, b"k", b"v")], codec=codec), count=count)
    with pytest.raises(InvalidRecordError, match=r"orders-0: .* at position 0"):
        columns_of(opened(data))
    with pytest.raises(InvalidRecordError):
        list(iter_columns(opened(data), step_records=1))


def test_payload_that_unpacks_above_the_limit_is_refused() -> None:
    bomb = compress(Compression.GZIP, bytes(1 << 20))
    head = batch(0, [(1, b"k", b"v")], codec=Compression.GZIP)[:61]
    data = bytearray(head + bomb)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    with pytest.raises(InvalidRecordError, match="more than 65536 bytes"):
        columns_of(opened(forged(bytes(data))), max_bytes=1 << 16)


def test_a_legacy_entry_has_no_columns() -> None:
    (entry,) = iter_batches(legacy(1, 0, b"k", b"v"), name="orders-0")
    with pytest.raises(ValueError, match="magic 1"):
        columns_of(entry)
    with pytest.raises(ValueError, match="magic 1"):
        next(iter_columns(entry))


@given(
    st.lists(
        st.tuples(
            st.lists(records, min_size=1, max_size=5), st.sampled_from([Compression.NONE] * 4 + [Compression.LZ4])
        ),
        max_size=6,
    ),
    st.integers(1, 9),
)
def test_columns_of_a_log_in_bulk_equal_its_batches_one_by_one(
    written: list[tuple[list[NewRecord], Compression]], step: int
) -> None:
    data, offset = b"", 100
    for epoch, (some, codec) in enumerate(written):
        data += encode_batch(some, base_offset=offset, compression=codec, leader_epoch=epoch)
        offset += len(some)
    expected = [record for found in iter_batches(data, name="orders-0") for record in found.records()]
    for content in (data, data + plain(offset)[:-1], memoryview(data)):
        found = list(iter_log_columns(content, name="orders-0", step_records=step))
        assert [record for some in found for record in some] == expected
        assert [value for some in found for value in some.values()] == [record.value for record in expected]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_wrong_checksum_in_bulk_is_an_error_with_the_position_of_the_batch(codec: Compression) -> None:
    data = bytearray(plain(0) + batch(1, [(1, b"k", b"v")], codec=codec))
    data[-1] ^= 1
    position = len(plain(0))
    with pytest.raises(CorruptRecordError, match=f"wrong checksum of the batch at position {position + 1000}"):
        list(iter_log_columns(bytes(data), name="orders-0", position=1000))


def test_damaged_record_in_bulk_is_an_error_with_the_position_of_the_batch() -> None:
    data = plain(0) + forged(plain(1, 2), count=5)
    with pytest.raises(InvalidRecordError, match=f"at position {len(plain(0))}"):
        list(iter_log_columns(data, name="orders-0"))


def test_large_batch_is_decoded_in_steps() -> None:
    found = opened(plain(10, 1000))
    assert [len(some) for some in iter_columns(found, step_records=300)] == [300, 300, 300, 100]
    assert [some.offset(0) for some in iter_columns(found, step_records=300)] == [10, 310, 610, 910]
