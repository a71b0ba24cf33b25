import pytest

from tests.coded import coded
from tests.log.batches import legacy, marker, plain, transactional
from tests.log.logs import records
from tierd.errors import CorruptRecordError, TierErrorCode
from tierd.log.log_errors import AppendError, RecordValidationError
from tierd.log.partition.append_info import (
    UNKNOWN_OFFSET,
    Analysis,
    AppendRequest,
    analyze,
    analyze_numbered,
    check_sizes,
)
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import MAX_INT
from tierd.log.records.record_rules import ValidationCounters


def look_at(data: bytes, origin: AppendOrigin = AppendOrigin.REPLICATION, *, limit: int = 1 << 20) -> Analysis:
    return analyze(
        AppendRequest(data, origin, 0), max_message_bytes=limit, name="orders-0", counters=ValidationCounters()
    )


def test_the_set_is_summed_up() -> None:
    data = plain(3, 2, timestamp_ms=500) + plain(5, 1, timestamp_ms=900) + plain(9, 3, timestamp_ms=100)
    seen = look_at(data)
    assert (seen.first_offset, seen.last_offset) == (3, 11)
    assert (seen.max_timestamp_ms, seen.shallow_offset_of_max_timestamp) == (900, 5)
    assert [batch.position for batch in seen.batches] == [0, seen.batches[0].size_bytes, seen.batches[1].end_position]
    assert seen.source_compression is Compression.NONE


def test_of_equal_timestamps_the_earliest_batch_counts() -> None:
    seen = look_at(records(2, base_offset=0) + records(2, base_offset=2))
    assert seen.shallow_offset_of_max_timestamp == 1
    assert look_at(records(timestamp_ms=-1)).shallow_offset_of_max_timestamp == -1


def test_numbered_batches_that_overlap_are_refused() -> None:
    with pytest.raises(AppendError, check=coded(TierErrorCode.OFFSETS_OUT_OF_ORDER)):
        look_at(records(2, base_offset=2) + records(2, base_offset=3))


@pytest.mark.parametrize("magic", [1, 2])
def test_a_numbered_set_that_fits_no_segment_is_refused(magic: int) -> None:
    """It would be acknowledged, and then cut off by the recovery after a crash: no index reaches that far."""

    def batch(offset: int) -> bytes:
        return legacy(1, offset, b"k", b"v") if magic == 1 else plain(offset, 1)

    assert look_at(batch(2) + batch(2 + MAX_INT)).last_offset == 2 + MAX_INT
    with pytest.raises(RecordValidationError, match="from offset 2 to 2147483650 fits no segment"):
        look_at(batch(2) + batch(3 + MAX_INT))


def test_the_last_codec_counts() -> None:
    codecs = (Compression.GZIP, Compression.ZSTD, Compression.NONE)
    data = b"".join(records(base_offset=at, codec=codec) for at, codec in enumerate(codecs))
    assert look_at(data).source_compression is Compression.ZSTD


def test_the_first_offset_of_a_legacy_set_is_not_known() -> None:
    seen = look_at(legacy(1, 4, b"k", b"v") + legacy(1, 5, b"k", b"v"))
    assert (seen.first_offset, seen.first_or_last_offset_of_first_batch, seen.last_offset) == (UNKNOWN_OFFSET, 4, 5)


def test_an_incomplete_batch_is_left_out() -> None:
    whole, torn = plain(0), plain(1)[:-1]
    assert bytes(look_at(whole + torn).records) == whole
    for cut in (0, 11, 16, 60):
        assert not look_at(plain(0)[:cut]).batches


def test_damage_is_found_with_its_position() -> None:
    first = plain(0)
    second = bytearray(plain(1))
    second[-1] ^= 1
    with pytest.raises(CorruptRecordError) as raised:
        look_at(first + bytes(second))
    assert raised.value.position == len(first)
    old = bytearray(legacy(1, 0, b"k", b"v"))
    old[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        look_at(bytes(old))


@pytest.mark.parametrize("origin", [AppendOrigin.REPLICATION, AppendOrigin.RAFT_LEADER])
def test_who_numbers_the_records_numbers_them_upwards(origin: AppendOrigin) -> None:
    with pytest.raises(AppendError, check=coded(TierErrorCode.OFFSETS_OUT_OF_ORDER), match="do not ascend: 2, 2"):
        look_at(plain(2) + plain(2), origin)
    assert len(look_at(plain(0) + plain(0), AppendOrigin.COORDINATOR).batches) == 2


def test_only_a_client_has_to_begin_at_0_and_only_a_replica_may_exceed_the_limit() -> None:
    data = plain(1)
    with pytest.raises(RecordValidationError):
        look_at(data, AppendOrigin.CLIENT)
    assert look_at(data, AppendOrigin.COORDINATOR).last_offset == 1
    assert look_at(data, limit=10).last_offset == 1
    for origin in (AppendOrigin.COORDINATOR, AppendOrigin.RAFT_LEADER):
        with pytest.raises(AppendError, check=coded(TierErrorCode.RECORD_TOO_LARGE)):
            look_at(data, origin, limit=len(data) - 1)
        assert look_at(data, origin, limit=len(data)).last_offset == 1


def test_what_the_validation_returned_is_only_parsed() -> None:
    data = transactional(5, 1, 2) + marker(7, 1, commit=True)
    batches = analyze_numbered(data, name="orders-0")
    assert [batch.last_offset for batch in batches] == [6, 7]
    check_sizes(batches, max_message_bytes=len(data))
    with pytest.raises(AppendError, check=coded(TierErrorCode.RECORD_TOO_LARGE)):
        check_sizes(batches, max_message_bytes=10)


def test_behind_every_record_there_has_to_be_an_offset() -> None:
    largest = (1 << 63) - 1
    assert look_at(plain(largest - 1)).last_offset == largest - 1
    with pytest.raises(RecordValidationError, match="leaves none"):
        look_at(plain(largest))
