"""Validation of the records of an append by the leader (log-format 4.3; Kafka: LogValidator).

The leader checks, numbers and stamps the records before the append, and writes them anew where the topic's codec or
magic 2 demand it. Takes and returns bytes; reads and writes no log. Leaders always write magic 2, so the records of a
client that still writes magic 0 or 1 are read one by one, and are built into a new batch (log-format 2.7).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.log.files.disk import Buffer
from tierd.log.log_errors import RecordValidationError
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import NO_PRODUCER, BatchBuilder, NewRecord, Producer
from tierd.log.records.batch_header import IS_LOG_APPEND_TIME
from tierd.log.records.batch_restamp import set_last_offset, set_leader_epoch, set_max_timestamp
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import LogConfig, TimestampType
from tierd.log.records.record_batch import RecordBatch, iter_batches
from tierd.log.records.record_columns import iter_columns
from tierd.log.records.record_rules import RecordRules, ValidationCounters

_TARGETS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Records that may be appended as they are.

    Attributes:
        records: one or more batches, numbered and stamped.
        last_offset: inclusive.
        max_timestamp_ms: of all of them; -1 without a timestamp.
        shallow_offset_of_max_timestamp: the offset for the time index; -1 without a timestamp.
        size_may_have_changed: the batch was written anew; its size has to be checked again.
    """

    records: bytearray = field(repr=False)
    last_offset: int
    max_timestamp_ms: int
    shallow_offset_of_max_timestamp: int
    size_may_have_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Append:
    """Arguments of one call."""

    first_offset: int
    leader_epoch: int
    origin: AppendOrigin
    config: LogConfig
    now_ms: int
    source: Compression
    target: Compression
    counters: ValidationCounters

    def rules(self) -> RecordRules:
        return RecordRules(self.config, now_ms=self.now_ms, counters=self.counters)


def validate_and_assign(
    records: Buffer,
    *,
    first_offset: int,
    leader_epoch: int,
    origin: AppendOrigin,
    config: LogConfig,
    now_ms: int,
    source_compression: Compression,
    name: str,
    counters: ValidationCounters,
) -> ValidationResult:
    """Check, number and stamp a set of records.

    Args:
        records: whole batches, whose checksums were found to be right; not changed.
        first_offset: of the first record: the log end offset.
        leader_epoch: stamped into the batch.
        origin: ``CLIENT`` or ``COORDINATOR``; more is demanded of the former.
        config: codec, timestamps and policy of the topic.
        now_ms: the timestamp of LogAppendTime, from which CreateTime must not differ too much.
        source_compression: codec of the last compressed batch.
        name: of the log, for errors.
        counters: count the refusals.

    Raises:
        RecordValidationError: batches or records break a rule; ``INVALID_TIMESTAMP`` if one is of timestamps.
        CorruptRecordError: an impossible header, or a wrong checksum within a compressed legacy entry.
    """
    append = _Append(
        first_offset=first_offset,
        leader_epoch=leader_epoch,
        origin=origin,
        config=config,
        now_ms=now_ms,
        source=source_compression,
        target=_TARGETS.get(config.compression_type, source_compression),
        counters=counters,
    )
    batches = iter_batches(memoryview(records), name=name, check_crc=False)
    first = next(batches, None)
    if first is None:
        raise RecordValidationError(f"{name}: a set of records without a batch")
    try:
        if first.magic < 2:
            return _convert(first, batches, append)
        if next(batches, None) is not None:
            raise RecordValidationError(f"{name}: more than one batch in a set; a client sends one at a time")
        return _validate(first, append)
    except InvalidRecordError as error:
        raise RecordValidationError(str(error)) from error


def _validate(batch: RecordBatch, append: _Append) -> ValidationResult:
    """Check a batch of magic 2 and leave it in place, unless its codec or its numbers are not the ones wanted."""
    _check_batch(batch, append)
    rules = append.rules()
    max_timestamp_ms, checked, is_consecutive, base = -1, 0, True, batch.base_offset
    for columns in iter_columns(batch):
        rules.check_columns(batch, columns, first_index=checked)
        max_timestamp_ms = max(max_timestamp_ms, max(columns.columns.timestamp_ms, default=-1))
        end = checked + len(columns)
        is_consecutive = is_consecutive and columns.offsets() == list(range(base + checked, base + end))
        checked = end
    rules.conclude(batch)
    stays_in_place = batch.is_control or batch.compression is append.target
    if stays_in_place and not is_consecutive:
        if batch.is_control or batch.compression is Compression.NONE:
            append.counters.invalid_offset += 1
            raise RecordValidationError(f"{batch.name}: the offsets of the records are not consecutive")
        stays_in_place = False
    if stays_in_place:
        return _restamp(batch, append, max_timestamp_ms)
    return _rebuild(batch, append)


def _check_batch(batch: RecordBatch, append: _Append) -> None:
    """Check a batch's header; of a coordinator's batch, only that the record count is the count of offsets."""
    count, offsets = batch.record_count, batch.last_offset - batch.base_offset + 1
    if append.origin is AppendOrigin.CLIENT:
        if count <= 0:
            append.counters.invalid_offset += 1
            raise RecordValidationError(f"{batch.name}: a batch of {count} records")
        if batch.is_control:
            append.counters.invalid_offset += 1
            raise RecordValidationError(f"{batch.name}: a client may not write control records")
        if batch.producer_id >= 0 and batch.base_sequence < 0:
            append.counters.invalid_sequence += 1
            raise RecordValidationError(
                f"{batch.name}: sequence number {batch.base_sequence} of producer {batch.producer_id}"
            )
    if count != offsets:
        append.counters.invalid_offset += 1
        raise RecordValidationError(f"{batch.name}: a batch of {count} records for {offsets} offsets")


def _restamp(batch: RecordBatch, append: _Append, max_timestamp_ms: int) -> ValidationResult:
    """Number and stamp the batch as it is; its checksum is computed only if its timestamp or their type change."""
    last_offset = append.first_offset + batch.record_count - 1
    timestamp_type = append.config.message_timestamp_type
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        max_timestamp_ms = append.now_ms
    stamped = bytearray(batch.data)
    set_last_offset(stamped, last_offset)
    set_leader_epoch(stamped, append.leader_epoch)
    set_max_timestamp(stamped, timestamp_type, max_timestamp_ms)
    has_offset = max_timestamp_ms >= 0 or batch.compression is not Compression.NONE
    return ValidationResult(stamped, last_offset, max_timestamp_ms, last_offset if has_offset else -1, False)


def _rebuild(batch: RecordBatch, append: _Append) -> ValidationResult:
    """Write a batch of magic 2 anew, in the topic's codec."""
    producer = Producer(batch.producer_id, batch.producer_epoch, batch.base_sequence)
    builder = _builder(append, producer, is_transactional=batch.is_transactional)
    for record in batch.records():
        _append_record(builder, NewRecord(record.key, record.value, record.timestamp_ms, record.headers), batch)
    return _built(builder)


def _convert(first: RecordBatch, others: Iterator[RecordBatch], append: _Append) -> ValidationResult:
    """Write legacy entries as one batch of magic 2: several plain ones, or a single compressed one."""
    builder = _builder(append, NO_PRODUCER, is_transactional=False)
    batch: RecordBatch | None = first
    while batch is not None:
        if batch.magic != first.magic:
            append.counters.invalid_magic += 1
            raise RecordValidationError(f"{batch.name}: magic {batch.magic} in a set that began with {first.magic}")
        rules = append.rules()
        for record in _iter_legacy_records(batch, rules=rules, counters=append.counters):
            if not rules.error_count:
                _append_record(builder, record, batch)
        rules.conclude(batch)
        batch = next(others, None)
        if batch is not None and append.source is not Compression.NONE:
            raise RecordValidationError(f"{batch.name}: more than one batch in a set that is compressed")
    return _built(builder)


def _builder(append: _Append, producer: Producer, *, is_transactional: bool) -> BatchBuilder:
    return BatchBuilder(
        base_offset=append.first_offset,
        compression=append.target,
        level=append.config.compression_level,
        timestamp_type=append.config.message_timestamp_type,
        log_append_time_ms=append.now_ms,
        producer=producer,
        is_transactional=is_transactional,
        leader_epoch=append.leader_epoch,
    )


def _append_record(builder: BatchBuilder, record: NewRecord, batch: RecordBatch) -> None:
    try:
        builder.append(record)
    except ValueError as error:  # a timestamp that the format cannot have, though a lenient topic would take it
        raise RecordValidationError(f"{batch.name}: {error}") from error


def _built(builder: BatchBuilder) -> ValidationResult:
    try:
        built = bytearray(builder.build())
    except ValueError as error:
        raise RecordValidationError(str(error)) from error
    return ValidationResult(
        built,
        builder.next_offset - 1,
        builder.max_timestamp_ms,
        builder.shallow_offset_of_max_timestamp,
        True,
    )


def _iter_legacy_records(
    batch: RecordBatch,
    *,
    rules: RecordRules,
    counters: ValidationCounters,
) -> Iterator[NewRecord]:
    """Decode the records of one entry; ``rules`` note the records that they refuse, which are not yielded.

    Raises:
        CorruptRecordError: a record within a compressed entry does not have its checksum.
        InvalidRecordError: the entry cannot be decoded.
        RecordValidationError: a compressed entry without records, or one whose offsets cannot be.
    """
    if batch.compression is Compression.NONE:
        key, value = batch.legacy_fields()
        timestamp_ms = batch.max_timestamp_ms
        rules.check(batch, 0, has_key=key is not None, timestamp_ms=timestamp_ms)
        if not rules.error_count:
            yield NewRecord(key, value, timestamp_ms)
        return
    last_offset = -1
    for index, entry in enumerate(batch.inner_entries()):
        record = _inner_record(batch, entry, index, rules, counters)
        last_offset = entry.last_offset
        if record is not None:
            yield record
    if last_offset < 0:
        raise RecordValidationError(f"{batch.name}: a compressed entry without records")
    if batch.magic == 1 and 0 < batch.last_offset < last_offset:
        raise RecordValidationError(
            f"{batch.name}: offset {batch.last_offset} is below its last relative offset {last_offset}"
        )


def _inner_record(
    batch: RecordBatch, entry: RecordBatch, index: int, rules: RecordRules, counters: ValidationCounters
) -> NewRecord | None:
    before = rules.error_count
    if entry.attributes & 7:
        rules.refuse(index, "a compressed record within a compressed entry")
        return None
    if entry.magic != batch.magic:
        rules.refuse_magic(index, f"magic {entry.magic} within an entry of magic {batch.magic}")
        return None
    if not entry.is_valid:
        counters.invalid_checksum += 1
        raise CorruptRecordError(batch.name, batch.position, f"wrong checksum of record {index} within the entry")
    key, value = entry.legacy_fields()
    timestamp_ms = batch.max_timestamp_ms if batch.attributes & IS_LOG_APPEND_TIME else entry.max_timestamp_ms
    rules.check(batch, index, has_key=key is not None, timestamp_ms=timestamp_ms if batch.magic else -1)
    return NewRecord(key, value, timestamp_ms if batch.magic else -1) if rules.error_count == before else None
