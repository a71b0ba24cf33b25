"""Reads of a broker's partition log by offset, from its files (log-format 8.1)."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tierd.errors import CorruptRecordError, LogError, OffsetOutOfRangeError, SegmentChangedError
from tierd.log.broker.live_segment import open_readable, readable_bytes
from tierd.log.files.partition_scan import MAX_OFFSET, PartitionScan, SegmentFiles, has_newer_segment
from tierd.log.files.source import Source, open_source
from tierd.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from tierd.log.producers.transactions import read_end_marker
from tierd.log.records.batch_header import OVERHEAD_BYTES, BatchHeader, headers_in, iter_headers
from tierd.log.records.record import ControlRecordType
from tierd.log.segments.segment_ranges import segments_from
from tierd.log.segments.segment_reading import collect_aborted, find_batch, indexed_position, read_aborted


@dataclass(frozen=True, slots=True)
class _Bookmark:
    """The end of the last read, which spares the next read a lookup. It does not count in a file with another inode."""

    inode: int
    next_offset: int
    position: int


class EndMarkerAt(NamedTuple):
    """Marker that ends a transaction."""

    offset: int
    is_abort: bool

    def aborted(self, producer_id: int, first_offset: int) -> AbortedTransaction:
        """Return the transaction of ``producer_id`` from ``first_offset`` on, which this marker aborts."""
        return AbortedTransaction(producer_id, first_offset, self.offset, first_offset)


class LocalLog:
    """The readable part of a partition's local log: ``[log_start_offset, high_watermark)``.

    Every call blocks, and opens and closes its files. One reader at a time.
    """

    def __init__(
        self,
        scan: PartitionScan,
        *,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int | None = None,
    ) -> None:
        """Read the segments of a scan.

        Args:
            scan: the partition.
            high_watermark: exclusive end of the readable offsets.
            last_stable_offset: exclusive end of the decided offsets.
            log_start_offset: of the log dir's checkpoint, if it lies above the base of the first segment.
        """
        first = scan.segments[0].base_offset if scan.segments else high_watermark
        self.scan = scan
        self.log_start_offset = max(first, log_start_offset or 0)
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self._bookmark: _Bookmark | None = None

    def read(self, offset: int, *, max_bytes: int) -> bytes:
        """Return complete batches, from the one that holds ``offset`` or follows it, below the high watermark.

        The first batch may begin below ``offset``, and may be larger than ``max_bytes``. The answer
        ends with the segment, and is empty at the high watermark. The caller checks the checksums.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start, or above the high watermark.
            SegmentChangedError: a file vanished, or was replaced.
            CorruptRecordError: a header on the way is damaged.
            LogDirOfflineError: a file cannot be read.
        """
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.scan.directory.topic_partition}: offset {offset} is not in the local log "
                f"[{self.log_start_offset}, {self.high_watermark})",
                remedy="read from an offset in that range",
            )
        if offset == self.high_watermark:
            return b""
        for segment in segments_from(self.scan.segments, offset):
            if segment.base_offset >= self.high_watermark:
                break
            if data := self._read_segment(segment, offset, max_bytes):
                return data
        return b""

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that concern a read of ``[from_offset, upper_offset)``.

        Raises:
            CorruptIndexError: a transaction index is damaged.
            SegmentChangedError: a segment of the range is gone, and so are its aborted transactions; or the broker has
                begun a segment that the scan does not have, and the marker of a transaction may be there.
            LogDirOfflineError: a file cannot be read.
        """
        segments = self.scan.segments
        may_be_gone = bool(segments) and from_offset < segments[0].base_offset
        return collect_aborted(
            self._indexed_from(from_offset),
            from_offset,
            upper_offset,
            read_index=lambda segment: _transaction_index(segment, may_be_gone=may_be_gone),
        )

    def end_markers(self, producer_ids: Collection[int], from_offset: int) -> dict[int, "EndMarkerAt"]:
        """Return the first marker of each producer from ``from_offset`` on, below the last stable offset.

        Raises:
            CorruptRecordError: a header or a marker on the way is damaged.
            SegmentChangedError: a file vanished.
            LogDirOfflineError: a file cannot be read.
        """
        found: dict[int, EndMarkerAt] = {}
        for segment in segments_from(self.scan.segments, from_offset):
            if segment.base_offset >= self.last_stable_offset or len(found) == len(producer_ids):
                break
            self._add_end_markers(segment, producer_ids, from_offset, found)
        return found

    def _add_end_markers(
        self, segment: SegmentFiles, producer_ids: Collection[int], from_offset: int, found: "dict[int, EndMarkerAt]"
    ) -> None:
        with open_readable(segment) as opened:
            for header in iter_headers(opened.source, end=opened.end):
                if header.base_offset >= self.last_stable_offset or len(found) == len(producer_ids):
                    return
                is_wanted = header.producer_id in producer_ids and header.producer_id not in found
                if not (header.is_control and is_wanted and header.base_offset >= from_offset):
                    continue
                if (marker := read_end_marker(opened.source, header)) is not None:
                    is_abort = marker.control_type is ControlRecordType.ABORT
                    found[header.producer_id] = EndMarkerAt(header.base_offset, is_abort)

    def _indexed_from(self, offset: int) -> Iterator[SegmentFiles]:
        """Yield the segments from the one that holds ``offset`` on that may name aborted transactions."""
        yield from filter(self.scan.may_have_aborted, segments_from(self.scan.segments, offset))
        # A watermark may be newer than the scan. Every segment below it has begun by now.
        if has_newer_segment(self.scan):
            raise SegmentChangedError(
                f"{self.scan.directory.path}: the broker has begun a segment", remedy="list the segments again"
            )

    def _read_segment(self, segment: SegmentFiles, offset: int, max_bytes: int) -> bytes:
        with open_source(segment.log) as source:
            mark = self._bookmark
            is_next = mark is not None and (mark.inode, mark.next_offset) == (source.inode, offset)
            end = readable_bytes(source, segment)
            header = find_batch(
                open_source,
                source,
                segment,
                offset,
                end=end,
                known_position=mark.position if mark and is_next else None,
                # A rolled segment ends with a complete batch: a walk that stops at damage would hide the damage.
                may_be_torn=segment.next_base_offset is None,
            )
            if header is None or header.last_offset >= self.high_watermark:
                return b""
            size = min(max(max_bytes, header.size_bytes), end - header.position)
            return self._whole_batches(source, header, source.read(header.position, size))

    def _whole_batches(self, source: Source, first: BatchHeader, data: bytes) -> bytes:
        """Cut ``data``, which begins with the batch ``first``, behind its last readable batch."""
        end, next_offset = 0, first.base_offset
        for header in headers_in(data, name=first.name, position=first.position):
            if header.last_offset >= self.high_watermark:
                break
            if header.last_offset < next_offset:
                raise CorruptRecordError(first.name, header.position, f"offset {header.last_offset} again")
            end += header.size_bytes
            next_offset = header.last_offset + 1
        if not end:
            raise SegmentChangedError(f"{first.name}: changed while it was read")
        self._bookmark = _Bookmark(source.inode, next_offset, first.position + end)
        return data[:end]


def _transaction_index(segment: SegmentFiles, *, may_be_gone: bool) -> TransactionIndex:
    """Read the transaction index. Its absence counts only while the log, which the broker renames first, is there."""
    index = read_aborted(open_source, segment)
    if index or segment.log.exists():
        return index or TransactionIndex()
    going = replace(segment, deleted=True)
    index = read_aborted(open_source, going)
    if index or may_be_gone or going.log.exists():
        return index or TransactionIndex()
    raise SegmentChangedError(f"{segment.log}: deleted while it was read", remedy="read again")


def find_log_end_offset(scan: PartitionScan) -> int:
    """Return the offset of the next record, from the batches of the active segment. Blocking.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    return find_segment_end_offset(scan.segments[-1]) if scan.segments else 0


def find_cut_end(scan: PartitionScan, *, high_watermark: int) -> int | None:
    """Return the end of a log whose files end below ``high_watermark``; None for every other log. Blocking.

    A crash takes batches that were not flushed, committed ones as well, and the checkpoint of the high watermark
    outlives them. The answer is also None where the end is not known: the broker has begun a segment that the scan does
    not have, or a file cannot be read, which its reader reports.
    """
    if not scan.segments:
        return None
    try:
        end = find_log_end_offset(scan)
        is_cut = end < high_watermark and not has_newer_segment(scan)
    except LogError:
        return None
    return end if is_cut else None


def read_batch_header(segment: SegmentFiles, offset: int) -> tuple[int, int, bytes]:
    """Return inode, position and header of the last batch of a segment that begins at or before ``offset``. Blocking.

    The position is -1 and the header empty when the segment has no such batch.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    with open_source(segment.log) as source:
        end = readable_bytes(source, segment)
        position = indexed_position(open_source, source, segment, offset)
        found = -1
        for header in iter_headers(source, position=position, end=end):
            if header.base_offset > offset:
                break
            found = header.position
        return source.inode, found, source.read(found, OVERHEAD_BYTES) if found >= 0 else b""


def find_segment_end_offset(segment: SegmentFiles) -> int:
    """Return the offset behind the last batch in a segment's file; the base offset for an empty segment. Blocking.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    end = segment.base_offset
    with open_readable(segment) as opened:
        last = MAX_OFFSET if segment.next_base_offset is None else segment.end_offset
        position = indexed_position(open_source, opened.source, segment, last)
        for header in iter_headers(opened.source, position=position, end=opened.end):
            end = header.last_offset + 1
    return end


def batch_at(segment: SegmentFiles, offset: int) -> BatchHeader | None:
    """Return the first batch of ``segment`` that holds ``offset`` or follows it; None when there is none. Blocking.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: a file vanished or became shorter.
        LogDirOfflineError: a file cannot be read.
    """
    with open_source(segment.log) as source:
        return find_batch(open_source, source, segment, offset, end=source.size_bytes)
