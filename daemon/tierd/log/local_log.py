"""LocalLog: a partition's log read by offset, as it lies on disk (log-format 8.1)."""

from bisect import bisect_right
from dataclasses import dataclass, replace

from tierd.errors import CorruptRecordError, OffsetOutOfRangeError, SegmentChangedError
from tierd.log.batch_header import OVERHEAD_BYTES, BatchHeader, crc_matches, iter_headers, parse_header
from tierd.log.files import Source, open_source
from tierd.log.offset_index import lookup_on_disk
from tierd.log.partition_scan import PartitionScan, SegmentFiles
from tierd.log.transaction_index import AbortedTransaction, TransactionIndex, read_transaction_index


@dataclass(frozen=True, slots=True)
class _Bookmark:
    """Where the last read ended, so that a reader who goes on needs no lookup; void in a file that replaced it."""

    inode: int
    next_offset: int
    position: int


class LocalLog:
    """The readable part of a partition's local log: ``[log_start_offset, high_watermark)``.

    Every call blocks; the files are opened anew for each, so nothing is held in between. One reader at a time.
    """

    def __init__(
        self,
        scan: PartitionScan,
        *,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int | None = None,
    ) -> None:
        """Read what ``scan`` saw.

        Args:
            scan: the partition.
            high_watermark: exclusive end of what may be read.
            last_stable_offset: exclusive end of what is decided.
            log_start_offset: from the log dir's checkpoint, when it lies above the first segment's base.
        """
        first = scan.segments[0].base_offset if scan.segments else high_watermark
        self.scan = scan
        self.log_start_offset = max(first, log_start_offset or 0)
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self._bases = [segment.base_offset for segment in scan.segments]
        self._bookmark: _Bookmark | None = None

    def read(self, offset: int, *, max_bytes: int) -> bytes:
        """Return whole batches, from the one that holds ``offset`` or follows it, below the high watermark.

        The first batch may begin below ``offset``, and is returned even when it is larger than ``max_bytes``. Never
        more than the rest of one segment. Empty at the high watermark. Checksums are the reader's to check.

        Raises:
            OffsetOutOfRangeError: below the log start, or above the high watermark.
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
        first = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self.scan.segments[first:]:
            if segment.base_offset >= self.high_watermark:
                break
            if data := self._read_segment(segment, offset, max_bytes):
                return data
        return b""

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that a read of ``[from_offset, upper_offset)`` has to know.

        Raises:
            CorruptIndexError: a transaction index is damaged.
            SegmentChangedError: a segment in which the range may lie is gone, and what was aborted in it not known.
            LogDirOfflineError: a file cannot be read.
        """
        found: list[AbortedTransaction] = []
        first = max(bisect_right(self._bases, from_offset) - 1, 0)
        for segment in self.scan.segments[first:]:
            index = _transaction_index(segment, may_be_gone=from_offset < self._bases[0])
            entries, complete = index.collect(from_offset, upper_offset)
            found.extend(entries)
            if complete:
                break
        return tuple(found)

    def _read_segment(self, segment: SegmentFiles, offset: int, max_bytes: int) -> bytes:
        with open_source(segment.log) as source:
            position = self._position(segment, source, offset)
            # A rolled segment ends with a whole batch: to pass over what follows damage would hide it.
            for header in iter_headers(source, position=position, may_be_torn=segment.next_base_offset is None):
                if header.last_offset < offset:
                    continue
                if header.last_offset >= self.high_watermark:
                    return b""
                data = source.read(header.position, max(max_bytes, header.size_bytes))
                return self._whole_batches(source, header, data)
        return b""

    def _whole_batches(self, source: Source, first: BatchHeader, data: bytes) -> bytes:
        """Cut ``data``, which begins with the batch ``first``, behind its last batch that may be read."""
        end, next_offset = 0, first.base_offset
        while (
            (header := parse_header(data, end, name=first.name, position=first.position + end)) is not None
            and end + header.size_bytes <= len(data)
            and header.last_offset < self.high_watermark
        ):
            if header.last_offset < next_offset:
                raise CorruptRecordError(first.name, header.position, f"offset {header.last_offset} again")
            end += header.size_bytes
            next_offset = header.last_offset + 1
        if not end:
            raise SegmentChangedError(f"{first.name}: changed while it was read")
        self._bookmark = _Bookmark(source.inode, next_offset, first.position + end)
        return data[:end]

    def _position(self, segment: SegmentFiles, source: Source, offset: int) -> int:
        """Where to begin to look for ``offset``: the index's word if a sound batch proves it, else the start."""
        mark = self._bookmark
        if mark and (mark.inode, mark.next_offset) == (source.inode, offset):
            return mark.position
        try:
            with open_source(segment.offset_index) as index:
                found = lookup_on_disk(index, base_offset=segment.base_offset, offset=offset)
        except SegmentChangedError:  # no index: the walk from the start is only slower
            return 0
        return found.position if _is_proven(source, found.offset, found.position) else 0


def _transaction_index(segment: SegmentFiles, *, may_be_gone: bool) -> TransactionIndex:
    """Read a segment's index. Most have none: it counts as absent only while the log, which goes first, is there."""
    index = read_transaction_index(segment.transaction_index, base_offset=segment.base_offset)
    if len(index) or segment.log.exists():
        return index
    going = replace(segment, deleted=True)
    index = read_transaction_index(going.transaction_index, base_offset=segment.base_offset)
    if may_be_gone or going.log.exists():
        return index
    raise SegmentChangedError(f"{segment.log}: deleted while it was read", remedy="read again")


def _is_proven(source: Source, last_offset: int, position: int) -> bool:
    """Whether a sound batch begins at ``position``, with offsets at or below those that the index claims for it."""
    if not position:
        return True
    data = source.read(position, OVERHEAD_BYTES)
    try:
        header = parse_header(data, 0, name=str(source.path), position=position)
    except CorruptRecordError:
        return False
    if header is None or header.end_position > source.size_bytes:
        return False
    return header.base_offset <= last_offset and crc_matches(source, header)


def find_log_end_offset(scan: PartitionScan) -> int:
    """The offset that the next record would get, from the batches of the active segment. Blocking.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    if not scan.segments:
        return 0
    active = scan.segments[-1]
    end = active.base_offset
    with open_source(active.log) as source:
        for header in iter_headers(source):
            end = header.last_offset + 1
    return end
