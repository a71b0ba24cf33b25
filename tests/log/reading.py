"""A whole log, read as a consumer reads it, in the form of the oracles."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.golden.unpack import OracleRecord
from tests.log.test_golden import as_oracle
from tierd.errors import CorruptRecordError
from tierd.log import ControlRecordType, RecordBatch, iter_batches
from tierd.log.partition.unified_log import UnifiedLog
from tierd.model import IsolationLevel


@dataclass(frozen=True, slots=True)
class Found:
    """The readable part of a log."""

    records: list[OracleRecord]
    committed: list[OracleRecord]
    offsets: dict[str, int]
    stopped_at_damage: bool


def read_whole_log(log: UnifiedLog) -> Found:
    """Read all records of a log with one replica: the high watermark is the log end."""
    log.update_high_watermark(log.log_end_offset)
    batches, records, stopped_at_damage = [], [], False
    try:
        for batch in read_batches(log):
            batches.append(batch)
            if not batch.is_control:
                records += [as_oracle(record) for record in batch.records()]
    except CorruptRecordError:
        stopped_at_damage = True
    offsets = {
        "logStartOffset": log.log_start_offset,
        "highWatermark": log.high_watermark,
        "lastStableOffset": log.last_stable_offset,
    }
    return Found(records, committed(log, batches), offsets, stopped_at_damage)


def read_batches(log: UnifiedLog) -> Iterator[RecordBatch]:
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes=3000, isolation=IsolationLevel.READ_UNCOMMITTED).records:
        for batch in iter_batches(data, name="read"):
            yield batch
            offset = batch.last_offset + 1


def committed(log: UnifiedLog, batches: list[RecordBatch]) -> list[OracleRecord]:
    """Return the records that a read_committed consumer keeps, given the batches and the aborted transactions."""
    end = log.last_stable_offset
    aborted = sorted(log.aborted_transactions(log.log_start_offset, end), key=lambda entry: entry.first_offset)
    skipped: set[int] = set()
    found: list[OracleRecord] = []
    for batch in (batch for batch in batches if batch.last_offset < end):
        while aborted and aborted[0].first_offset <= batch.last_offset:
            skipped.add(aborted.pop(0).producer_id)
        if batch.is_control:
            if batch.control_type() is ControlRecordType.ABORT:
                skipped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in skipped):
            found += [as_oracle(record) for record in batch.records()]
    return found
