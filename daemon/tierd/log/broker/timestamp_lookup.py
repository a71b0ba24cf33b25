"""Search for an offset by timestamp in a log that a broker owns, as for ListOffsets (log-format 8.2)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile

from tierd.log.broker.live_segment import open_readable
from tierd.log.files.partition_scan import PartitionScan, SegmentFiles
from tierd.log.files.source import open_source
from tierd.log.records.batch_header import iter_headers
from tierd.log.records.log_config import MAX_LONG
from tierd.log.segments.log_snapshot import LogSnapshot, OpenLog, first_in_segments, indexed_timestamp
from tierd.log.segments.segment_reading import OpenReadable
from tierd.model import TimestampOffset


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """The ``LogSnapshot`` of a log that a broker owns."""

    scan: PartitionScan

    def segments(self) -> Iterator[SegmentFiles]:
        """Yield the segments, ascending."""
        return iter(self.scan.segments)

    @property
    def open_file(self) -> OpenReadable:
        """Return a function that opens a file of the log for reading."""
        return open_source

    def open_log(self, segment: SegmentFiles) -> AbstractContextManager[OpenLog]:
        """Open the log file of a segment."""
        return open_readable(segment)


def first_since(scan: PartitionScan, timestamp_ms: int, *, start: int, end: int) -> TimestampOffset | None:
    """Find the first record of ``[start, end)`` whose timestamp is at least ``timestamp_ms``. Blocking.

    Raises:
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    log = ScannedLog(scan)
    candidates = (
        segment
        for segment in takewhile(lambda segment: segment.base_offset < end, log.segments())
        if (segment.next_base_offset is None or segment.next_base_offset > start)
        and _largest_timestamp_ms(log, segment, end) >= timestamp_ms
    )
    return first_in_segments(log, candidates, timestamp_ms, start=start, end=end)


def max_timestamp(scan: PartitionScan, *, end: int) -> TimestampOffset | None:
    """Find the first record below ``end`` with the largest timestamp; None without records. Blocking.

    Raises:
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    log, largest_ms, found_in = ScannedLog(scan), -1, None
    for segment in takewhile(lambda segment: segment.base_offset < end, log.segments()):
        latest_ms = _largest_timestamp_ms(log, segment, end)
        if latest_ms > largest_ms:
            largest_ms, found_in = latest_ms, segment
    if found_in is None:
        return None
    return first_in_segments(log, [found_in], largest_ms, start=found_in.base_offset, end=end)


def _largest_timestamp_ms(log: LogSnapshot, segment: SegmentFiles, end: int) -> int:
    """Return the largest timestamp of a segment below ``end``. The time index of a rolled segment ends with it."""
    if segment.next_base_offset is not None and segment.next_base_offset <= end:
        entry = indexed_timestamp(log, segment, MAX_LONG)
        if entry is not None:
            return entry.timestamp_ms
    with log.open_log(segment) as opened:
        headers = takewhile(lambda header: header.base_offset < end, iter_headers(opened.source, end=opened.end))
        return max((header.max_timestamp_ms for header in headers), default=-1)
