"""Comparison of copied batches with the local log, record by record at the offsets that both have.

A cleaner removes records on either side, merges segments, and writes batches anew. It never replaces a record by
another one. So different records at one offset prove that the log was truncated and has grown again over the offset.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tierd.log.broker.local_log import LocalLog
from tierd.log.files.partition_scan import MAX_OFFSET, PartitionScan
from tierd.log.records.record import Record
from tierd.log.records.record_batch import RecordBatch, iter_batches

_READ_BYTES = 1 << 20


class Comparison(NamedTuple):
    """Result of a comparison.

    Attributes:
        records: number of offsets that have a record on both sides.
        differs_at: the first offset at which the two records differ; None when none does.
    """

    records: int
    differs_at: int | None


def compare_with_local(scan: PartitionScan, copied: Sequence[RecordBatch]) -> Comparison:
    """Compare ``copied``, consecutive batches, with the local log, as far as the local log has their offsets. Blocking.

    Raises:
        CorruptRecordError: a local batch is damaged.
        InvalidRecordError: records of a batch cannot be decoded.
        SegmentChangedError: a local file vanished, or was replaced.
        LogDirOfflineError: a local file cannot be read.
    """
    if not copied:
        return Comparison(0, None)
    start, end = min(batch.base_offset for batch in copied), copied[-1].last_offset
    return compare_batches(copied, tuple(local_batches(scan, start, end)))


def compare_batches(copied: Sequence[RecordBatch], local: Sequence[RecordBatch]) -> Comparison:
    """Compare two runs of batches; equal ones are not opened.

    Raises:
        InvalidRecordError: records of a batch cannot be decoded.
    """
    known = {batch_identity(batch) for batch in local}
    shared = {batch_identity(batch) for batch in copied} & known
    equal = sum(batch.record_count for batch in copied if batch.record_count > 0 and batch_identity(batch) in shared)
    theirs = dict(_records(batch for batch in local if batch_identity(batch) not in shared))
    common = 0
    first: int | None = None
    for offset, record in _records(batch for batch in copied if batch_identity(batch) not in shared):
        if offset in theirs:
            common += 1
            if theirs[offset] != record:
                first = offset if first is None else min(first, offset)
    return Comparison(equal + common, first)


BatchIdentity = tuple[int, int, int, int, int]
"""Fields of a batch: two batches that agree in all of them are the same, but for the leader epoch and damage."""


def batch_identity(batch: RecordBatch) -> BatchIdentity:
    """Return the fields that tell one batch from another."""
    return batch.base_offset, batch.last_offset, batch.size_bytes, batch.magic, batch.crc


def _records(batches: Iterator[RecordBatch]) -> Iterator[tuple[int, object]]:
    for batch in batches:
        for record in batch.records():
            # the leader epoch is left out: a lineage decides about it
            yield record.offset, record_identity(batch, record)


def record_identity(batch: RecordBatch, record: Record) -> object:
    """Return the content of a record of ``batch``, which no log cleaner changes."""
    return batch.is_control, record.timestamp_ms, record.key, record.value, record.headers


def local_batches(scan: PartitionScan, start: int, end: int) -> Iterator[RecordBatch]:
    """Yield the batches of the local log with an offset in ``[start, end]``, as far as the log has them. Blocking.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: a file vanished, or was replaced.
        LogDirOfflineError: a file cannot be read.
    """
    if not scan.segments:
        return
    # What the high watermark says of batches above it does not matter: only offsets that were copied are asked for.
    log = LocalLog(scan, high_watermark=MAX_OFFSET, last_stable_offset=MAX_OFFSET)
    at = max(start, log.log_start_offset)
    while at <= end and (data := log.read(at, max_bytes=_READ_BYTES)):
        for batch in iter_batches(data, name=str(scan.directory.path)):
            if batch.base_offset > end:
                return
            yield batch
            at = batch.last_offset + 1
