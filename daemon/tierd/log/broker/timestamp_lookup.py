"""From a timestamp to an offset in a log that a broker owns, as ListOffsets asks (log-format 8.2)."""

from collections.abc import Iterator

from tierd.errors import SegmentChangedError
from tierd.log.broker.live_segment import readable_bytes
from tierd.log.files.partition_scan import PartitionScan, SegmentFiles
from tierd.log.files.source import open_source
from tierd.log.indexes.index_lookup import lookup_timestamp
from tierd.log.records.batch_header import BatchHeader, iter_headers
from tierd.log.records.log_config import MAX_LONG
from tierd.log.records.record_batch import read_batch
from tierd.log.segments.segment_reader import indexed_position
from tierd.model import TimestampOffset


def first_since(scan: PartitionScan, timestamp_ms: int, *, start: int, end: int) -> TimestampOffset | None:
    """The first record of ``[start, end)`` that is no older than ``timestamp_ms``. Blocking.

    Raises:
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    for segment in scan.segments:
        if segment.base_offset >= end:
            break
        if segment.next_base_offset is not None and segment.next_base_offset <= start:
            continue
        if _largest_in(segment, end) < timestamp_ms:
            continue
        found = _first_in(segment, timestamp_ms, start=start, end=end)
        if found is not None:
            return found
    return None


def max_timestamp(scan: PartitionScan, *, end: int) -> TimestampOffset | None:
    """The first record below ``end`` with the largest timestamp; None without records. Blocking.

    Raises:
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    largest, found_in = -1, None
    for segment in scan.segments:
        if segment.base_offset >= end:
            break
        latest_ms = _largest_in(segment, end)
        if latest_ms > largest:
            largest, found_in = latest_ms, segment
    return None if found_in is None else _first_in(found_in, largest, start=found_in.base_offset, end=end)


def _first_in(segment: SegmentFiles, timestamp_ms: int, *, start: int, end: int) -> TimestampOffset | None:
    hint = _indexed(segment, timestamp_ms)
    with open_source(segment.log) as source:
        known = start if hint is None else max(hint.offset, start)
        position = indexed_position(open_source, source, segment, known)
        for header in iter_headers(source, position=position, end=readable_bytes(source, segment)):
            if header.base_offset >= end:
                break
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < start:
                continue
            for record in read_batch(source, header).records():
                if record.timestamp_ms >= timestamp_ms and start <= record.offset < end:
                    return TimestampOffset(record.timestamp_ms, record.offset, _epoch(header))
    return None


def _largest_in(segment: SegmentFiles, end: int) -> int:
    """The largest timestamp below ``end``. The time index of a rolled segment ends with it."""
    if segment.next_base_offset is not None and segment.next_base_offset <= end:
        entry = _indexed(segment, MAX_LONG)
        if entry is not None:
            return entry.timestamp_ms
    with open_source(segment.log) as source:
        headers = iter_headers(source, end=readable_bytes(source, segment))
        return max((h.max_timestamp_ms for h in _headers_below(headers, end)), default=-1)


def _headers_below(headers: Iterator[BatchHeader], end: int) -> Iterator[BatchHeader]:
    for header in headers:
        if header.base_offset >= end:
            return
        yield header


def _indexed(segment: SegmentFiles, timestamp_ms: int) -> TimestampOffset | None:
    """The largest entry of the time index at or below ``timestamp_ms``; None without a time index."""
    try:
        with open_source(segment.time_index) as source:
            return lookup_timestamp(source, base_offset=segment.base_offset, timestamp_ms=timestamp_ms)
    except SegmentChangedError:
        return None


def _epoch(header: BatchHeader) -> int | None:
    return header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
