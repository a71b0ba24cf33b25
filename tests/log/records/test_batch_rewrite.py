import pytest

from tests.log.batches import batch, legacy, wrapper
from tests.log.encoded_record import encode_record
from tierd.errors import InvalidRecordError
from tierd.log import BatchHeader, Compression, NewRecord, Record, encode_batch, iter_batches, parse_header
from tierd.log.records.batch_rewrite import empty_batch, rewrite_batch, upgrade_batch

NOW_MS = 1_700_000_000_000


def header_of(data: bytes) -> BatchHeader:
    header = parse_header(data, 0, name="orders.log", position=0)
    assert header is not None
    return header


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("has_horizon", [True, False])
def test_rewritten_batch_keeps_its_header_and_has_the_new_records(codec: Compression, *, has_horizon: bool) -> None:
    before = encode_batch([NewRecord(b"k", b"v", NOW_MS)] * 3, base_offset=7, compression=codec, leader_epoch=4)
    data = rewrite_batch(
        header_of(before),
        encode_record(5, 1, b"k", b"v"),
        record_count=1,
        base_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS + 5,
        has_delete_horizon=has_horizon,
    )
    (found,) = iter_batches(bytes(data), name="after")
    assert (found.base_offset, found.last_offset, found.partition_leader_epoch, found.compression) == (7, 9, 4, codec)
    assert found.delete_horizon_ms == (NOW_MS if has_horizon else None)
    assert list(found.records()) == [Record(8, NOW_MS + 5, "CreateTime", b"k", b"v", (), 4)]


def test_emptied_batch_is_a_header_without_codec_and_delete_horizon() -> None:
    before = encode_batch([NewRecord(b"k", b"v", NOW_MS)], compression=Compression.ZSTD, delete_horizon_ms=5)
    (found,) = iter_batches(empty_batch(header_of(before), base_offset=0), name="after")
    assert (found.size_bytes, found.attributes, found.record_count) == (61, 0, 0)
    assert (found.base_timestamp_ms, found.max_timestamp_ms) == (-1, NOW_MS)


def test_upgraded_wrapper_becomes_a_batch_that_begins_with_its_first_kept_record() -> None:
    inner = b"".join(legacy(1, n, b"%d" % n, b"v", timestamp_ms=1000 + n) for n in range(3))
    (old,) = iter_batches(wrapper(1, 12, inner), name="before")
    kept = list(old.records())[1:]
    (found,) = iter_batches(upgrade_batch(old, kept, delete_horizon_ms=None), name="after")
    assert (found.magic, found.base_offset, found.last_offset, found.max_timestamp_ms) == (2, 11, 12, 1002)
    assert list(found.records()) == kept


def test_records_that_magic_2_cannot_express_are_refused_and_named() -> None:
    old = header_of(legacy(1, 5, b"k", b"v"))
    before_time = [Record(5, -2, "CreateTime", b"k", b"v")]
    with pytest.raises(InvalidRecordError, match=r"orders\.log: not to be written as magic 2: timestamp -2"):
        upgrade_batch(old, before_time, delete_horizon_ms=None)


def test_rewrite_with_the_same_records_gives_the_same_bytes() -> None:
    before = batch(
        3, [(NOW_MS, b"a", b"1"), (NOW_MS + 4, None, None)], producer_id=4, producer_epoch=1, base_sequence=9
    )
    header = header_of(before)
    data = rewrite_batch(
        header,
        before[61:],
        record_count=2,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        has_delete_horizon=False,
    )
    assert bytes(data) == before
