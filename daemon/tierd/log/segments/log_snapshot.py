"""A local log at one moment, and the search by time in it: the same for a broker's log and for a log of tierd's own."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from tierd.errors import SegmentChangedError
from tierd.log.files.disk import Readable
from tierd.log.files.partition_scan import MAX_OFFSET, SegmentFiles
from tierd.log.indexes.index_lookup import lookup_timestamp
from tierd.log.records.batch_header import BatchHeader, iter_headers
from tierd.log.records.record_batch import RecordBatch, read_batch
from tierd.log.segments.segment_reading import OpenReadable, indexed_position
from tierd.model import TimestampOffset


class OpenLog(NamedTuple):
    """The open log file of a segment.

    Attributes:
        end: position behind the last byte that readers may see.
    """

    source: Readable
    end: int


class LogSnapshot(Protocol):
    """The segments of a local log at one moment. Their files may be gone when a reader opens them."""

    def segments(self) -> Iterator[SegmentFiles]:
        """Yield the segments, ascending; the last segment is active."""

    @property
    def open_file(self) -> OpenReadable:
        """Return a function that opens a file of the log for reading."""

    def open_log(self, segment: SegmentFiles) -> AbstractContextManager[OpenLog]:
        """Open the log file of a segment.

        Raises:
            SegmentChangedError: the file is gone, or is shorter than its readable part.
        """


def first_in_segments(
    snapshot: LogSnapshot,
    candidates: Iterable[SegmentFiles],
    timestamp_ms: int,
    *,
    start: int = 0,
    end: int = MAX_OFFSET,
) -> TimestampOffset | None:
    """Find the first record of ``[start, end)`` whose timestamp is at least ``timestamp_ms``. Blocking.

    Args:
        snapshot: the log.
        candidates: segments that may hold such a record, ascending. The search takes one after the other, as needed.
        timestamp_ms: smallest timestamp that is wanted.
        start: inclusive.
        end: exclusive.

    Raises:
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: a file vanished.
    """
    for segment in candidates:
        found = _first_in_segment(snapshot, segment, timestamp_ms, start=start, end=end)
        if found is not None:
            return found
    return None


def first_in_batch(batch: RecordBatch, timestamp_ms: int, *, start: int, end: int) -> TimestampOffset | None:
    """Find the first record of ``[start, end)`` in ``batch`` whose timestamp is at least ``timestamp_ms``.

    Raises:
        InvalidRecordError: the records cannot be decoded.
    """
    for record in batch.records():
        if record.timestamp_ms >= timestamp_ms and start <= record.offset < end:
            return TimestampOffset(record.timestamp_ms, record.offset, known_epoch(batch))
    return None


def known_epoch(header: BatchHeader) -> int | None:
    """Return the leader epoch of a batch; None for a batch without one."""
    return header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None


def indexed_timestamp(snapshot: LogSnapshot, segment: SegmentFiles, timestamp_ms: int) -> TimestampOffset | None:
    """Look up the largest entry of the time index at or below ``timestamp_ms``; None without a time index. Blocking.

    An index without such an entry answers (-1, base offset).
    """
    try:
        with snapshot.open_file(segment.time_index) as source:
            return lookup_timestamp(source, base_offset=segment.base_offset, timestamp_ms=timestamp_ms)
    except SegmentChangedError:  # an index is made when it is first needed: without one a search takes longer
        return None


def headers_from(snapshot: LogSnapshot, segment: SegmentFiles, opened: OpenLog, offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of a segment from an indexed batch at or before ``offset`` on. Blocking."""
    position = indexed_position(snapshot.open_file, opened.source, segment, offset)
    return iter_headers(opened.source, position=position, end=opened.end)


def _first_in_segment(
    snapshot: LogSnapshot, segment: SegmentFiles, timestamp_ms: int, *, start: int, end: int
) -> TimestampOffset | None:
    hint = indexed_timestamp(snapshot, segment, timestamp_ms)
    with snapshot.open_log(segment) as opened:
        known = start if hint is None else max(hint.offset, start)
        for header in headers_from(snapshot, segment, opened, known):
            if header.base_offset >= end:
                break
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < start:
                continue
            found = first_in_batch(read_batch(opened.source, header), timestamp_ms, start=start, end=end)
            if found is not None:
                return found
    return None
