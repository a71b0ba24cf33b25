"""The sets that a leader accepts, refuses and changes (log-format 4.3 and 13.4); the leader always writes magic 2."""

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.coded import coded
from tests.log.batches import forged, legacy, wrapper
from tierd.errors import CorruptRecordError, LogError, TierErrorCode
from tierd.log import Record, RecordBatch, iter_batches
from tierd.log.log_errors import RecordValidationError
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import NO_PRODUCER, NewRecord, Producer, encode_batch, encode_end_marker
from tierd.log.records.compression import Compression, compress
from tierd.log.records.log_config import LogConfig, TimestampType
from tierd.log.records.record import ControlRecordType
from tierd.log.records.record_rules import MAX_RECORD_ERRORS, ValidationCounters
from tierd.log.records.validation import ValidationResult, validate_and_assign

NOW_MS = 1_700_000_000_000
EPOCH = 16
HOUR_MS = 3_600_000
FIRST = 1_234_567

LOG_APPEND_TIME = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
CREATE_TIME = LogConfig()
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))
CODECS = list(Compression)
LEGACY_CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
PRODUCER = Producer(1_324, 10, 20)


def stored_as(codec: str, config: LogConfig = CREATE_TIME) -> LogConfig:
    return replace(config, compression_type=codec)


def v2(
    timestamps: Sequence[int] = (NOW_MS, NOW_MS, NOW_MS),
    *,
    codec: Compression = Compression.NONE,
    level: int | None = None,
    producer: Producer = NO_PRODUCER,
    is_transactional: bool = False,
    key: bytes | None = b"key",
    stamped_by: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    records = [NewRecord(key, b"value %d" % i, timestamp, (("h", b"x"),)) for i, timestamp in enumerate(timestamps)]
    return encode_batch(
        records,
        compression=codec,
        level=level,
        producer=producer,
        is_transactional=is_transactional,
        timestamp_type=stamped_by,
        log_append_time_ms=NOW_MS,
    )


def old(
    magic: int,
    timestamps: Sequence[int] = (NOW_MS, NOW_MS, NOW_MS),
    *,
    codec: Compression = Compression.NONE,
    key: bytes | None = b"key",
    offsets: Sequence[int] | None = None,
    inner_magic: int | None = None,
) -> bytes:
    """Build a set of legacy entries, or a wrapper of them."""
    numbers = range(len(timestamps)) if offsets is None else offsets
    inner_magic = magic if inner_magic is None else inner_magic
    entries = b"".join(
        legacy(inner_magic, offset, key, b"value %d" % i, timestamp_ms=timestamp)
        for i, (offset, timestamp) in enumerate(zip(numbers, timestamps, strict=True))
    )
    return wrapper(magic, max(numbers), entries, codec=codec) if codec else entries


def any_set(
    magic: int,
    timestamps: Sequence[int] = (NOW_MS, NOW_MS, NOW_MS),
    *,
    codec: Compression = Compression.NONE,
    key: bytes | None = b"key",
) -> bytes:
    return v2(timestamps, codec=codec, key=key) if magic == 2 else old(magic, timestamps, codec=codec, key=key)


def validate(
    records: bytes,
    config: LogConfig = CREATE_TIME,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    first_offset: int = FIRST,
    counters: ValidationCounters | None = None,
) -> ValidationResult:
    source = Compression.NONE
    for batch in iter_batches(records, name="orders-0", check_crc=False):
        source = batch.compression or source
    before = bytes(records)
    result = validate_and_assign(
        records,
        first_offset=first_offset,
        leader_epoch=EPOCH,
        origin=origin,
        config=config,
        now_ms=NOW_MS,
        source_compression=source,
        name="orders-0",
        counters=ValidationCounters() if counters is None else counters,
    )
    assert bytes(records) == before, "the records of the caller are not changed"
    return result


def batch_of(result: ValidationResult) -> RecordBatch:
    """Return the one batch of a result after a check of its checksum."""
    (batch,) = iter_batches(bytes(result.records), name="result")
    assert batch.partition_leader_epoch == EPOCH
    assert batch.last_offset == result.last_offset
    assert batch.max_timestamp_ms == result.max_timestamp_ms
    return batch


def records_of(result: ValidationResult) -> list[Record]:
    return list(batch_of(result).records())


ALL_SETS = [
    pytest.param(magic, codec, id=f"v{magic} {codec.name.lower()}")
    for magic in (0, 1, 2)
    for codec in CODECS
    if magic == 2 or codec is not Compression.ZSTD
]
all_sets = pytest.mark.parametrize(("magic", "codec"), ALL_SETS)


@pytest.mark.spec("log-format VAL-01")
@pytest.mark.parametrize("codec", CODECS)
def test_several_batches_of_a_client_in_one_set_are_refused(codec: Compression) -> None:
    sets = [v2(codec=codec) * 2]
    if codec not in (Compression.NONE, Compression.ZSTD):
        sets += [old(0, codec=codec) * 2, old(1, codec=codec) * 2, old(1) + old(1, codec=codec)]
    for data in sets:
        with pytest.raises(RecordValidationError, match="more than one batch"):
            validate(data)


@pytest.mark.spec("log-format VAL-01")
@pytest.mark.parametrize("target", ["producer", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_several_plain_legacy_entries_become_one_batch(magic: int, target: str) -> None:
    result = validate(old(magic), stored_as(target))
    assert [record.value for record in records_of(result)] == [b"value 0", b"value 1", b"value 2"]
    assert batch_of(result).compression is (Compression.GZIP if target == "gzip" else Compression.NONE)


@pytest.mark.spec("log-format VAL-02")
def test_a_set_without_a_batch_is_refused() -> None:
    with pytest.raises(RecordValidationError, match="without a batch"):
        validate(b"")


@pytest.mark.spec("log-format VAL-02")
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_without_records_is_refused(codec: Compression) -> None:
    counters = ValidationCounters()
    empty = v2(codec=codec)[:61]
    empty = empty[:8] + struct.pack(">i", 49) + empty[12:]
    with pytest.raises(RecordValidationError, match="a batch of 0 records"):
        validate(forged(empty, count=0), counters=counters)
    assert counters.invalid_offset == 1
    if codec in LEGACY_CODECS:
        with pytest.raises(RecordValidationError, match="without records"):
            validate(wrapper(1, 0, b"", codec=codec))


@pytest.mark.spec("log-format VAL-03")
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize(("outer", "inner"), [(1, 0), (0, 1)])
def test_every_record_of_another_magic_than_its_wrapper_is_listed(outer: int, inner: int, codec: Compression) -> None:
    counters = ValidationCounters()
    with pytest.raises(RecordValidationError) as refusal:
        validate(old(outer, [NOW_MS] * 20, codec=codec, inner_magic=inner), counters=counters)
    assert refusal.value.code is None
    assert [index for index, _ in refusal.value.record_errors] == list(range(20))
    assert counters.invalid_magic == 20


def test_set_with_entries_of_two_magics_is_refused() -> None:
    counters = ValidationCounters()
    with pytest.raises(RecordValidationError, match="magic 1"):
        validate(old(0) + old(1), counters=counters)
    assert counters.invalid_magic == 1


@pytest.mark.spec("log-format VAL-04")
def test_log_append_time_stamps_a_plain_batch_in_place() -> None:
    data = v2([0, 5, NOW_MS], producer=PRODUCER)
    result = validate(data, LOG_APPEND_TIME)
    assert [(record.timestamp_ms, record.timestamp_type) for record in records_of(result)] == [
        (NOW_MS, "LogAppendTime")
    ] * 3
    assert (result.max_timestamp_ms, result.shallow_offset_of_max_timestamp) == (NOW_MS, FIRST + 2)
    assert (result.size_may_have_changed, len(result.records)) == (False, len(data))
    assert bytes(result.records[61:]) == data[61:]
    assert result.records[27:35] == data[27:35], "the base timestamp stays"


@pytest.mark.spec("log-format VAL-04")
@pytest.mark.parametrize("magic", [0, 1])
def test_log_append_time_stamps_plain_legacy_entries_as_they_are_converted(magic: int) -> None:
    result = validate(old(magic, [0, 5, 7]), LOG_APPEND_TIME)
    assert [record.timestamp_ms for record in records_of(result)] == [NOW_MS] * 3
    assert (result.max_timestamp_ms, result.shallow_offset_of_max_timestamp) == (NOW_MS, FIRST + 2)
    assert result.size_may_have_changed


@pytest.mark.spec("log-format VAL-05")
@pytest.mark.parametrize("codec", CODECS[1:])
def test_log_append_time_stamps_a_compressed_batch_in_place(codec: Compression) -> None:
    data = v2([0, 5, 7], codec=codec)
    result = validate(data, LOG_APPEND_TIME, first_offset=0)
    assert [record.timestamp_ms for record in records_of(result)] == [NOW_MS] * 3
    assert (result.shallow_offset_of_max_timestamp, result.size_may_have_changed) == (2, False)
    assert bytes(result.records[61:]) == data[61:]


@pytest.mark.spec("log-format VAL-06")
@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_log_append_time_rebuilds_a_compressed_legacy_entry(codec: Compression) -> None:
    result = validate(old(0, codec=codec), LOG_APPEND_TIME)
    assert [record.timestamp_ms for record in records_of(result)] == [NOW_MS] * 3
    assert result.size_may_have_changed
    assert batch_of(result).compression is codec


@pytest.mark.spec("log-format VAL-07")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_create_time_keeps_the_times_of_a_plain_batch(*, is_transactional: bool) -> None:
    data = v2([NOW_MS - 1, NOW_MS + 1, NOW_MS], producer=PRODUCER, is_transactional=is_transactional)
    result = validate(data, first_offset=0)
    batch = batch_of(result)
    assert [record.timestamp_ms for record in batch.records()] == [NOW_MS - 1, NOW_MS + 1, NOW_MS]
    assert (result.max_timestamp_ms, result.shallow_offset_of_max_timestamp) == (NOW_MS + 1, 2)
    assert Producer(batch.producer_id, batch.producer_epoch, batch.base_sequence) == PRODUCER
    assert batch.is_transactional is is_transactional
    assert bytes(result.records[17:]) == data[17:], "the bytes under the checksum stay"


@pytest.mark.spec("log-format VAL-07")
def test_create_time_keeps_the_times_of_plain_legacy_entries() -> None:
    result = validate(old(1, [NOW_MS - 1, NOW_MS + 1, NOW_MS]), first_offset=0)
    assert [record.timestamp_ms for record in records_of(result)] == [NOW_MS - 1, NOW_MS + 1, NOW_MS]
    assert (result.max_timestamp_ms, result.shallow_offset_of_max_timestamp) == (NOW_MS + 1, 2)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_wrong_max_timestamp_of_a_producer_is_corrected(codec: Compression) -> None:
    data = bytearray(v2([1, 9, 5], codec=codec))
    data[35:43] = (77).to_bytes(8, "big")
    result = validate(forged(bytes(data)))
    assert batch_of(result).max_timestamp_ms == 9


@pytest.mark.spec("log-format VAL-08")
@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd"])
def test_plain_batch_is_compressed_with_the_codec_of_the_topic(target: str) -> None:
    data = v2([NOW_MS - 1, NOW_MS + 1, NOW_MS], producer=PRODUCER, is_transactional=True)
    result = validate(data, stored_as(target), first_offset=0)
    batch = batch_of(result)
    assert batch.compression.name.lower() == target
    assert [(r.timestamp_ms, r.key, r.headers) for r in batch.records()] == [
        (NOW_MS + n, b"key", (("h", b"x"),)) for n in (-1, 1, 0)
    ]
    assert (result.max_timestamp_ms, result.shallow_offset_of_max_timestamp) == (NOW_MS + 1, 2)
    assert result.size_may_have_changed
    assert Producer(batch.producer_id, batch.producer_epoch, batch.base_sequence) == PRODUCER
    assert batch.is_transactional


def test_compressed_batch_is_unpacked_for_an_uncompressed_topic() -> None:
    result = validate(v2(codec=Compression.LZ4), stored_as("uncompressed"))
    assert batch_of(result).compression is Compression.NONE
    assert bytes(result.records[61:]) == v2()[61:]


@pytest.mark.spec("log-format VAL-09")
@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("config", ["producer", "own name"])
def test_create_time_leaves_a_compressed_batch_in_place(codec: Compression, config: str) -> None:
    data = v2([NOW_MS - 1, NOW_MS + 1, NOW_MS], codec=codec)
    target = "producer" if config == "producer" else codec.name.lower()
    result = validate(data, stored_as(target), first_offset=0)
    assert [record.timestamp_ms for record in records_of(result)] == [NOW_MS - 1, NOW_MS + 1, NOW_MS]
    assert (result.shallow_offset_of_max_timestamp, result.size_may_have_changed) == (2, False)
    assert bytes(result.records[17:]) == data[17:]


@pytest.mark.spec("log-format VAL-10")
@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_a_compressed_entry_of_magic_1_keeps_its_times(codec: Compression) -> None:
    result = validate(old(1, [NOW_MS - 1, NOW_MS + 1, NOW_MS], codec=codec))
    batch = batch_of(result)
    assert batch.base_timestamp_ms == NOW_MS - 1
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert [record.timestamp_ms for record in batch.records()] == [NOW_MS - 1, NOW_MS + 1, NOW_MS]
    assert result.max_timestamp_ms == NOW_MS + 1


@pytest.mark.spec("log-format VAL-11")
@pytest.mark.parametrize("codec", [Compression.NONE, *LEGACY_CODECS])
def test_records_of_magic_0_have_no_timestamp(codec: Compression) -> None:
    result = validate(old(0, codec=codec))
    assert [record.timestamp_ms for record in records_of(result)] == [-1] * 3
    assert (result.max_timestamp_ms, result.shallow_offset_of_max_timestamp) == (-1, -1)


@pytest.mark.spec("log-format VAL-12")
@pytest.mark.parametrize(("magic", "codec"), [row for row in ALL_SETS if row.values[0] != 0])
def test_records_older_than_the_topic_allows_are_refused(magic: int, codec: Compression) -> None:
    config = replace(CREATE_TIME, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    with pytest.raises(RecordValidationError, check=coded(TierErrorCode.INVALID_TIMESTAMP)):
        validate(any_set(magic, [NOW_MS - 1001] * 3, codec=codec), config)
    validate(any_set(magic, [NOW_MS - 1000, NOW_MS, NOW_MS + 1000], codec=codec), config)


@pytest.mark.spec("log-format VAL-13")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("timestamp_ms", [NOW_MS - 24 * HOUR_MS - HOUR_MS // 12, NOW_MS + HOUR_MS + HOUR_MS // 12])
def test_each_record_with_a_timestamp_out_of_range_is_listed(codec: Compression, timestamp_ms: int) -> None:
    config = replace(CREATE_TIME, message_timestamp_before_max_ms=24 * HOUR_MS, message_timestamp_after_max_ms=HOUR_MS)
    with pytest.raises(RecordValidationError, check=coded(TierErrorCode.INVALID_TIMESTAMP)) as refusal:
        validate(v2([timestamp_ms] * 3, codec=codec), config)
    assert [index for index, _ in refusal.value.record_errors] == [0, 1, 2]


@pytest.mark.spec("log-format VAL-14")
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_record_within_a_legacy_entry_is_corrupt(magic: int, codec: Compression) -> None:
    counters = ValidationCounters()
    inner = bytearray(old(magic))
    inner[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="wrong checksum of record 2"):
        validate(wrapper(magic, 2, bytes(inner), codec=codec), counters=counters)
    assert counters.invalid_checksum == 1


@pytest.mark.spec("log-format VAL-15")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", ["producer", "gzip", "uncompressed"])
def test_an_idempotent_batch_needs_a_sequence_number(codec: Compression, target: str) -> None:
    counters = ValidationCounters()
    data = bytearray(v2(codec=codec, producer=PRODUCER))
    data[53:57] = struct.pack(">i", -2)
    with pytest.raises(RecordValidationError, match="sequence number -2"):
        validate(forged(bytes(data)), stored_as(target), counters=counters)
    assert counters.invalid_sequence == 1


@pytest.mark.spec("log-format VAL-16")
@all_sets
def test_record_without_a_key_is_refused_on_a_compacted_topic(magic: int, codec: Compression) -> None:
    counters = ValidationCounters()
    with pytest.raises(RecordValidationError) as refusal:
        validate(any_set(magic, codec=codec, key=None), COMPACTED, counters=counters)
    assert refusal.value.code is None
    assert counters.no_key == (3 if codec or magic == 2 else 1)
    assert len(refusal.value.record_errors) == counters.no_key
    validate(any_set(magic, codec=codec), COMPACTED)


@pytest.mark.spec("log-format VAL-17")
@all_sets
def test_offsets_are_assigned_from_the_log_end_on(magic: int, codec: Compression) -> None:
    result = validate(any_set(magic, codec=codec))
    assert [record.offset for record in records_of(result)] == [FIRST, FIRST + 1, FIRST + 2]
    assert result.last_offset == FIRST + 2


@pytest.mark.spec("log-format VAL-17")
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_absolute_offsets_of_magic_0_are_replaced(codec: Compression) -> None:
    result = validate(old(0, codec=codec, offsets=[700, 705, 800]))
    assert [record.offset for record in records_of(result)] == [FIRST, FIRST + 1, FIRST + 2]


@pytest.mark.spec("log-format VAL-18")
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "zstd"])
def test_legacy_records_are_converted_to_magic_2(magic: int, codec: Compression, target: str) -> None:
    result = validate(old(magic, [NOW_MS] * 5, codec=codec), stored_as(target))
    batch = batch_of(result)
    assert batch.magic == 2
    assert [record.offset for record in batch.records()] == list(range(FIRST, FIRST + 5))
    assert [record.key for record in batch.records()] == [b"key"] * 5


@pytest.mark.spec("log-format VAL-20")
@pytest.mark.parametrize("target", ["producer", "snappy"])
def test_control_record_of_a_client_is_refused(target: str) -> None:
    counters = ValidationCounters()
    with pytest.raises(RecordValidationError, match="control"):
        validate(end_marker(), stored_as(target), counters=counters)
    assert counters.invalid_offset == 1


def end_marker() -> bytes:
    return encode_end_marker(
        kind=ControlRecordType.COMMIT, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp_ms=NOW_MS - 5
    )


@pytest.mark.spec("log-format VAL-21")
@pytest.mark.parametrize("config", [stored_as("snappy"), stored_as("gzip", COMPACTED), CREATE_TIME])
def test_marker_of_a_coordinator_is_not_changed_by_the_codec_of_the_topic(config: LogConfig) -> None:
    result = validate(end_marker(), config, origin=AppendOrigin.COORDINATOR)
    batch = batch_of(result)
    assert batch.is_control
    assert (batch.compression, batch.size_bytes) == (Compression.NONE, 78)
    assert (result.last_offset, result.shallow_offset_of_max_timestamp) == (FIRST, FIRST)


@pytest.mark.spec("log-format VAL-22")
@pytest.mark.parametrize("codec", CODECS)
def test_batch_whose_count_or_last_offset_disagrees_with_its_records_is_refused(codec: Compression) -> None:
    data = v2(codec=codec)
    validate(forged(data, last_offset_delta=2, count=3))
    for delta, count in ((0, 3), (15, 3), (5, 6), (1, 2), (2**31 - 1, 3), (0, 0), (2, -3)):
        with pytest.raises(RecordValidationError):
            validate(forged(data, last_offset_delta=delta, count=count))


@pytest.mark.spec("log-format VAL-22")
def test_a_negative_last_offset_delta_is_refused() -> None:
    with pytest.raises(LogError, match="impossible"):
        validate(forged(v2(), last_offset_delta=-3, count=3))


def test_disagreement_of_count_and_offsets_is_counted_as_invalid_offset() -> None:
    counters = ValidationCounters()
    with pytest.raises(RecordValidationError, match="3 records for 16 offsets"):
        validate(forged(v2(), last_offset_delta=15, count=3), counters=counters)
    assert counters.invalid_offset == 1


def numbered(offsets: Sequence[int], codec: Compression) -> bytes:
    """Build a batch whose records carry these offsets, and whose header says 0 to n - 1."""
    plain = bytearray(v2(codec=Compression.NONE)[:61])
    body = b"".join(bytes([16, 0, 0, 2 * offset, 2, 107, 2, 118, 0]) for offset in offsets)
    plain += compress(codec, body)
    plain[21:23] = struct.pack(">h", codec)
    plain[8:12] = struct.pack(">i", len(plain) - 12)
    return forged(bytes(plain), last_offset_delta=len(offsets) - 1, count=len(offsets))


@pytest.mark.spec("log-format VAL-23")
def test_a_plain_batch_whose_offsets_have_gaps_is_refused() -> None:
    counters = ValidationCounters()
    validate(numbered([0, 1, 2], Compression.NONE))
    with pytest.raises(RecordValidationError, match="not consecutive"):
        validate(numbered([0, 2, 3], Compression.NONE), counters=counters)
    assert counters.invalid_offset == 1


@pytest.mark.parametrize("offsets", [[0, 2, 3], [0, 0, 0], [2, 1, 0]])
def test_a_compressed_batch_whose_offsets_have_gaps_is_rebuilt(offsets: list[int]) -> None:
    result = validate(numbered(offsets, Compression.GZIP))
    assert [record.offset for record in records_of(result)] == [FIRST, FIRST + 1, FIRST + 2]
    assert result.size_may_have_changed


@pytest.mark.spec("log-format VAL-25")
def test_bad_timestamp_beside_other_faults_is_reported_as_invalid_timestamp() -> None:
    inner = b"".join(legacy(0, 0, b"k", b"v") for _ in range(5)) + legacy(1, 0, b"k", b"v", timestamp_ms=1200)
    config = replace(CREATE_TIME, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    with pytest.raises(RecordValidationError, check=coded(TierErrorCode.INVALID_TIMESTAMP)) as refusal:
        validate(wrapper(1, 0, inner), config)
    assert [index for index, _ in refusal.value.record_errors] == list(range(6))


@pytest.mark.spec("log-format VAL-26")
def test_batch_is_recompressed_for_another_codec_and_not_for_another_level() -> None:
    data = v2([NOW_MS] * 50, codec=Compression.GZIP, level=9)
    config = replace(stored_as("gzip"), compression_level=1)
    assert bytes(validate(data, config, first_offset=0).records[17:]) == data[17:]
    recompressed = validate(data, stored_as("lz4"), first_offset=0)
    assert bytes(recompressed.records[17:]) == v2([NOW_MS] * 50, codec=Compression.LZ4)[17:]


@pytest.mark.spec("log-format VAL-27")
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_whose_records_all_have_offset_0_is_accepted_and_rebuilt(magic: int, codec: Compression) -> None:
    result = validate(old(magic, codec=codec, offsets=[0, 0, 0]))
    assert [record.offset for record in records_of(result)] == [FIRST, FIRST + 1, FIRST + 2]


def test_a_wrapper_below_its_last_record_is_refused() -> None:
    inner = old(1)
    with pytest.raises(RecordValidationError, match="below its last relative offset"):
        validate(wrapper(1, 1, inner))


def test_compression_within_compression_is_refused() -> None:
    with pytest.raises(RecordValidationError, match="compressed record") as refusal:
        validate(wrapper(1, 0, old(1, codec=Compression.GZIP)))
    assert len(refusal.value.record_errors) == 1


@pytest.mark.spec("log-format VAL-28")
@pytest.mark.parametrize("codec", CODECS)
def test_without_limits_any_timestamp_is_accepted(codec: Compression) -> None:
    for timestamp_ms in (0, NOW_MS + 100 * 365 * 24 * HOUR_MS, 2**62, -1):
        result = validate(v2([timestamp_ms] * 3, codec=codec))
        assert result.max_timestamp_ms == timestamp_ms


@pytest.mark.spec("log-format VAL-28")
def test_records_without_a_timestamp_are_accepted_within_any_limits() -> None:
    config = replace(CREATE_TIME, message_timestamp_before_max_ms=0, message_timestamp_after_max_ms=0)
    result = validate(v2([-1, -1, -1]), config)
    assert (result.max_timestamp_ms, result.shallow_offset_of_max_timestamp) == (-1, -1)
    assert batch_of(result).max_timestamp_ms == -1


def test_log_append_time_set_by_a_producer_is_refused() -> None:
    data = v2(stamped_by=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(RecordValidationError, check=coded(TierErrorCode.INVALID_TIMESTAMP)) as refusal:
        validate(data, LOG_APPEND_TIME)
    assert len(refusal.value.record_errors) == 3
    # Kafka asks only when the timestamp itself was not checked
    assert batch_of(validate(data)).timestamp_type == "CreateTime"


def test_negative_timestamp_is_refused_only_when_the_batch_is_rebuilt() -> None:
    data = bytearray(v2([0, 0, 0]))
    data[27:35] = struct.pack(">q", -9)
    lenient = forged(bytes(data))
    validate(lenient)
    with pytest.raises(RecordValidationError, match="negative"):
        validate(lenient, stored_as("gzip"))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_that_are_no_records_are_refused(codec: Compression) -> None:
    data = bytearray(v2(codec=codec))
    data[61:66] = b"\xff" * 5
    with pytest.raises(RecordValidationError, match="position 0"):
        validate(forged(bytes(data)))
    with pytest.raises(RecordValidationError, match="codec 7"):
        validate_without_codec(forged(bytes(data[:22]) + b"\x07" + bytes(data[23:])))


def validate_without_codec(data: bytes) -> None:
    validate_and_assign(
        data,
        first_offset=0,
        leader_epoch=0,
        origin=AppendOrigin.CLIENT,
        config=CREATE_TIME,
        now_ms=NOW_MS,
        source_compression=Compression.NONE,
        name="orders-0",
        counters=ValidationCounters(),
    )


def test_listed_record_errors_are_bounded() -> None:
    many = MAX_RECORD_ERRORS + 5
    with pytest.raises(RecordValidationError, match=f"{many} records refused") as refusal:
        validate(v2([NOW_MS] * many, key=None), COMPACTED)
    assert len(refusal.value.record_errors) == MAX_RECORD_ERRORS


def test_batch_without_a_sequence_is_accepted_from_a_coordinator() -> None:
    data = bytearray(v2(producer=PRODUCER))
    data[53:57] = struct.pack(">i", -1)
    result = validate(forged(bytes(data)), origin=AppendOrigin.COORDINATOR)
    assert batch_of(result).base_sequence == -1
