"""The records of a client that still writes magic 0 or 1, checked one by one (log-format 2.7 and 4.3).

Leaders always write magic 2, so these records are only read here; ``validation`` builds a new batch of them.
"""

from collections.abc import Iterator

from tierd.errors import CorruptRecordError
from tierd.log.log_errors import RecordValidationError
from tierd.log.records.batch_builder import NewRecord
from tierd.log.records.batch_header import IS_LOG_APPEND_TIME
from tierd.log.records.compression import MAX_DECOMPRESSED_BYTES, Compression
from tierd.log.records.record_batch import RecordBatch
from tierd.log.records.record_rules import RecordRules, ValidationCounters


def iter_legacy_records(
    batch: RecordBatch,
    *,
    rules: RecordRules,
    counters: ValidationCounters,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
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
    for index, entry in enumerate(batch.inner_entries(max_bytes=max_bytes)):
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
