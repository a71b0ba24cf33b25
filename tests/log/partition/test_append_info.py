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


def analysis_of(data: bytes, origin: AppendOrigin = AppendOrigin.REPLICATION, *, limit: int = 1 << 20) -> Analysis:
    return analyze(
        AppendRequest(data, origin, 0), max_message_bytes=limit, name="orders-0", counters=ValidationCounters()
    )


def test_analysis_of_a_set_returns_its_offsets_timestamps_and_sizes() -> None:
    data = plain(3, 2, timestamp_ms=500) + plain(5, 1, timestamp_ms=900) + plain(9, 3, timestamp_ms=100)
    seen = analysis_of(data)
    assert (seen.first_offset, seen.last_offset) == (3, 11)
    assert (seen.max_timestamp_ms, seen.shallow_offset_of_max_timestamp) == (900, 5)
    assert [batch.position for batch in seen.batches] == [0, seen.batches[0].size_bytes, seen.batches[1].end_position]
    assert seen.source_compression is Compression.NONE


def test_analysis_with_the_headers_of_the_caller_is_that_of_the_bytes() -> None:
    data = plain(3, 2, timestamp_ms=500) + transactional(5, 1, 2)
    expected = analysis_of(data)
    request = AppendRequest(data, AppendOrigin.REPLICATION, headers=tuple(expected.batches))
    assert analyze(request, max_message_bytes=1, name="orders-0", counters=ValidationCounters()) == expected


def test_checksums_are_checked_also_with_the_headers_of_the_caller() -> None:
    data = plain(3) + plain(5)
    headers, counters = analysis_of(data).batches, ValidationCounters()
    damaged = AppendRequest(data[:-1] + bytes([data[-1] ^ 1]), AppendOrigin.REPLICATION, headers=headers)
    with pytest.raises(CorruptRecordError, match="wrong checksum"):
        analyze(damaged, max_message_bytes=1, name="orders-0", counters=counters)
    assert counters.invalid_checksum == 1


def test_largest_timestamp_belongs_to_the_earliest_batch_that_has_it() -> None:
    seen = analysis_of(records(2, base_offset=0) + records(2, base_offset=2))
    assert seen.shallow_offset_of_max_timestamp == 1
    assert analysis_of(records(timestamp_ms=-1)).shallow_offset_of_max_timestamp == -1


def test_numbered_batches_that_overlap_are_refused() -> None:
    with pytest.raises(AppendError, check=coded(TierErrorCode.OFFSETS_OUT_OF_ORDER)):
        analysis_of(records(2, base_offset=2) + records(2, base_offset=3))


@pytest.mark.parametrize("magic", [1, 2])
def test_numbered_set_with_offsets_too_far_apart_for_one_segment_is_refused(magic: int) -> None:
    """A leader would acknowledge the set, and a recovery after a crash would cut it off: no index reaches that far."""

    def batch(offset: int) -> bytes:
        return legacy(1, offset, b"k", b"v") if magic == 1 else plain(offset, 1)

    assert analysis_of(batch(2) + batch(2 + MAX_INT)).last_offset == 2 + MAX_INT
    with pytest.raises(RecordValidationError, match="from offset 2 to 2147483650 fits no segment"):
        analysis_of(batch(2) + batch(3 + MAX_INT))


def test_compression_of_a_set_is_that_of_its_last_batch() -> None:
    codecs = (Compression.GZIP, Compression.ZSTD, Compression.NONE)
    data = b"".join(records(base_offset=at, codec=codec) for at, codec in enumerate(codecs))
    assert analysis_of(data).source_compression is Compression.ZSTD


def test_first_offset_of_a_legacy_set_is_unknown() -> None:
    seen = analysis_of(legacy(1, 4, b"k", b"v") + legacy(1, 5, b"k", b"v"))
    assert (seen.first_offset, seen.first_or_last_offset_of_first_batch, seen.last_offset) == (UNKNOWN_OFFSET, 4, 5)


def test_incomplete_batch_at_the_end_of_a_set_is_left_out() -> None:
    whole, torn = plain(0), plain(1)[:-1]
    assert bytes(analysis_of(whole + torn).records) == whole
    for cut in (0, 11, 16, 60):
        assert not analysis_of(plain(0)[:cut]).batches


def test_damaged_batch_is_refused_with_its_position() -> None:
    first = plain(0)
    second = bytearray(plain(1))
    second[-1] ^= 1
    with pytest.raises(CorruptRecordError) as raised:
        analysis_of(first + bytes(second))
    assert raised.value.position == len(first)
    old = bytearray(legacy(1, 0, b"k", b"v"))
    old[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        analysis_of(bytes(old))


@pytest.mark.parametrize("origin", [AppendOrigin.REPLICATION, AppendOrigin.RAFT_LEADER])
def test_descending_offsets_are_refused_from_a_replica_or_raft_leader(origin: AppendOrigin) -> None:
    with pytest.raises(AppendError, check=coded(TierErrorCode.OFFSETS_OUT_OF_ORDER), match="do not ascend: 2, 2"):
        analysis_of(plain(2) + plain(2), origin)
    assert len(analysis_of(plain(0) + plain(0), AppendOrigin.COORDINATOR).batches) == 2


def test_client_must_begin_at_offset_0_and_replica_may_exceed_the_size_limit() -> None:
    data = plain(1)
    with pytest.raises(RecordValidationError):
        analysis_of(data, AppendOrigin.CLIENT)
    assert analysis_of(data, AppendOrigin.COORDINATOR).last_offset == 1
    assert analysis_of(data, limit=10).last_offset == 1
    for origin in (AppendOrigin.COORDINATOR, AppendOrigin.RAFT_LEADER):
        with pytest.raises(AppendError, check=coded(TierErrorCode.RECORD_TOO_LARGE)):
            analysis_of(data, origin, limit=len(data) - 1)
        assert analysis_of(data, origin, limit=len(data)).last_offset == 1


def test_numbered_set_of_the_validation_is_parsed_without_further_checks() -> None:
    data = transactional(5, 1, 2) + marker(7, 1, commit=True)
    batches = analyze_numbered(data, name="orders-0")
    assert [batch.last_offset for batch in batches] == [6, 7]
    check_sizes(batches, max_message_bytes=len(data))
    with pytest.raises(AppendError, check=coded(TierErrorCode.RECORD_TOO_LARGE)):
        check_sizes(batches, max_message_bytes=10)


def test_record_at_the_largest_offset_is_refused() -> None:
    largest = (1 << 63) - 1
    assert analysis_of(plain(largest - 1)).last_offset == largest - 1
    with pytest.raises(RecordValidationError, match="leaves none"):
        analysis_of(plain(largest))
