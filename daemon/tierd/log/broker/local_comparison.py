"""Comparison of copied batches with the local log, record by record at the offsets that both have.

A cleaner removes records on either side, merges segments, and writes batches anew. It never replaces a record by
another one. So different records at one offset prove that the log was truncated and has grown again over the offset.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tierd.log.broker.local_log import LocalLog
from tierd.log.files.partition_scan import MAX_OFFSET, PartitionScan
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
    return compare_batches(copied, tuple(_local_batches(scan, start, end)))


def compare_batches(copied: Sequence[RecordBatch], local: Sequence[RecordBatch]) -> Comparison:
    """Compare two runs of batches; equal ones are not opened.

    Raises:
        InvalidRecordError: records of a batch cannot be decoded.
    """
    known = {_identity(batch) for batch in local}
    shared = {_identity(batch) for batch in copied} & known
    equal = sum(batch.record_count for batch in copied if batch.record_count > 0 and _identity(batch) in shared)
    theirs = dict(_records(batch for batch in local if _identity(batch) not in shared))
    common = 0
    first: int | None = None
    for offset, record in _records(batch for batch in copied if _identity(batch) not in shared):
        if offset in theirs:
            common += 1
            if theirs[offset] != record:
                first = offset if first is None else min(first, offset)
    return Comparison(equal + common, first)


def _identity(batch: RecordBatch) -> tuple[int, int, int, int, int]:
    return batch.base_offset, batch.last_offset, batch.size_bytes, batch.magic, batch.crc


def _records(batches: Iterator[RecordBatch]) -> Iterator[tuple[int, object]]:
    for batch in batches:
        for record in batch.records():
            # the leader epoch is left out: a lineage decides about it
            yield record.offset, (batch.is_control, record.timestamp_ms, record.key, record.value, record.headers)


def _local_batches(scan: PartitionScan, start: int, end: int) -> Iterator[RecordBatch]:
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
