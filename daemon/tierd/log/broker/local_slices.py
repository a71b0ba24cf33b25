"""Places of batches in the files of a broker's log, for senders that copy from file to socket (log-format 8.1).

::

    [ batch | batch | batch | batch | batch | batch ...
              ^ the first wanted      ^ the batch that holds the end offset, or a later one: never reached
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tierd.errors import CorruptRecordError
from tierd.log.broker.live_segment import live_headers
from tierd.log.files.partition_scan import PartitionScan, SegmentFiles
from tierd.log.files.source import Source, open_source
from tierd.log.records.batch_header import OVERHEAD_BYTES, BatchHeader, parse_header
from tierd.log.segments.segment_ranges import segments_from
from tierd.log.segments.segment_reading import indexed_batch_before, indexed_position, read_upper_bound

_WALKED_AT_MOST: Final = 64  # headers: beyond that the index finds the next batch sooner than a walk
_NEAR_BYTES: Final = 256 << 10  # within that distance a walk needs no lookup in the index


@dataclass(frozen=True, slots=True)
class LocalSlice:
    """Bytes of one log file.

    Attributes:
        inode: of the file in which the batches were found.
        size_bytes: 0 where the first batch is larger than the reader takes.
        base_offset: of the first batch; may lie below the wanted offset.
        upper_offset: exclusive bound of the offsets in the slice; a tight one where the slice ends with a whole batch.
    """

    path: Path
    inode: int
    position: int
    size_bytes: int
    base_offset: int
    upper_offset: int


class KnownPositions:
    """Positions at which earlier reads ended, so that the reads behind them need no lookup. For any thread.

    A position is a hint. A reader uses it only if a batch with the wanted base offset begins there.
    """

    def __init__(self, *, capacity: int = 64) -> None:
        self._capacity = capacity
        self._positions: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, inode: int, offset: int) -> int | None:
        """Return the position of the batch that begins with ``offset`` in the file ``inode``; None when not known."""
        return self._positions.get((inode, offset))

    def add(self, inode: int, offset: int, position: int) -> None:
        """Note the position, and forget the oldest one beyond the capacity."""
        with self._lock:
            self._positions[inode, offset] = position
            self._positions.move_to_end((inode, offset))
            if len(self._positions) > self._capacity:
                self._positions.popitem(last=False)


def find_slice(
    scan: PartitionScan,
    offset: int,
    *,
    end_offset: int,
    max_bytes: int,
    at_least_one: bool,
    known: KnownPositions,
) -> LocalSlice | None:
    """Find the bytes of a read from ``offset`` on, in one segment; None without a batch below the end. Blocking.

    No record is read or checked. The last batch may be cut off by ``max_bytes``, never by ``end_offset``.

    Args:
        scan: the partition.
        offset: in the local log.
        end_offset: exclusive end of what the reader may have; of a batch that reaches beyond it there is no byte.
        max_bytes: bound on the bytes.
        at_least_one: take the first batch, whatever its size.
        known: positions of earlier reads of this log.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: a file vanished, or became shorter.
        LogDirOfflineError: a file cannot be read.
    """
    for segment in segments_from(scan.segments, offset):
        if segment.base_offset >= end_offset:
            break
        with open_source(segment.log) as source:
            search = _SliceSearch(source, segment, end_offset, known)
            found = search.slice_from(offset, max_bytes=max_bytes, at_least_one=at_least_one)
        if found is not None:
            return found
    return None


class _SliceEnd(NamedTuple):
    position: int
    next_offset: int | None  # behind the last batch; None where the slice may end within a batch


@dataclass(frozen=True, slots=True)
class _SliceSearch:
    """A search in the open log file of one segment."""

    source: Source
    segment: SegmentFiles
    end_offset: int
    known: KnownPositions

    def slice_from(self, offset: int, *, max_bytes: int, at_least_one: bool) -> LocalSlice | None:
        first = self._first_batch(offset)
        if first is None or first.last_offset >= self.end_offset:
            return None
        limit = max(max_bytes, first.size_bytes) if at_least_one else max_bytes
        if first.size_bytes > limit:
            return self._slice(first, _SliceEnd(first.position, first.base_offset))
        end = self._end(first, min(first.position + limit, self.source.size_bytes))
        if end.next_offset is not None and end.next_offset != self.segment.next_base_offset:
            self.known.add(self.source.inode, end.next_offset, end.position)
        return self._slice(first, end)

    def _first_batch(self, offset: int) -> BatchHeader | None:
        """Return the first batch that holds ``offset`` or follows it."""
        if offset <= self.segment.base_offset:
            return next(live_headers(self.source, self.segment, position=0), None)
        if (known := self._known_batch(offset)) is not None:
            return known
        position = indexed_position(open_source, self.source, self.segment, offset)
        headers = live_headers(self.source, self.segment, position=position)
        return next((header for header in headers if header.last_offset >= offset), None)

    def _known_batch(self, offset: int) -> BatchHeader | None:
        position = self.known.get(self.source.inode, offset)
        if position is None or position >= self.source.size_bytes:
            return None
        data = self.source.read(position, OVERHEAD_BYTES)
        try:
            header = parse_header(data, 0, name=str(self.source.path), position=position)
        except CorruptRecordError:
            return None  # the log was cut back and written anew since
        is_there = header is not None and header.base_offset == offset and header.end_position <= self.source.size_bytes
        return header if is_there else None

    def _end(self, first: BatchHeader, stop: int) -> _SliceEnd:
        """Return the end of a slice that begins with ``first`` and has no byte from ``stop`` on."""
        next_base = self.segment.next_base_offset
        if next_base is not None and next_base <= self.end_offset:
            if stop == self.source.size_bytes:
                return _SliceEnd(stop, next_base)
            return self._indexed_end(first, stop)
        if stop - first.position <= _NEAR_BYTES:
            return self._walked_end(first.position, stop, certain=0)
        certain = indexed_position(open_source, self.source, self.segment, self.end_offset - 1)
        if certain >= stop:
            return self._indexed_end(first, stop)
        return self._walked_end(max(first.position, certain), stop, certain=0)

    def _indexed_end(self, first: BatchHeader, stop: int) -> _SliceEnd:
        """Return the end of a slice, all of whose bytes before ``stop`` may be read: the last batch that the index has.

        Most walks over the headers of a slice took longer than everything else that a read needs.
        """
        if stop - first.position > _NEAR_BYTES:
            behind = indexed_batch_before(open_source, self.source, self.segment, stop)
            if behind is not None and behind.position - first.position > _NEAR_BYTES:
                return _SliceEnd(behind.position, behind.base_offset)
        return self._walked_end(first.position, stop, certain=stop)

    def _walked_end(self, position: int, stop: int, *, certain: int) -> _SliceEnd:
        """Walk from the readable batch at ``position`` to the last batch that is whole before ``stop`` and the end.

        A long walk is abandoned where all bytes up to ``certain`` may be read; then the slice ends at ``stop``.
        """
        end = _SliceEnd(position, None)
        for count, header in enumerate(live_headers(self.source, self.segment, position=position)):
            if header.end_position > stop or header.last_offset >= self.end_offset:
                break
            end = _SliceEnd(header.end_position, header.last_offset + 1)
            if count >= _WALKED_AT_MOST and certain >= stop:
                return _SliceEnd(stop, None)
        return end

    def _slice(self, first: BatchHeader, end: _SliceEnd) -> LocalSlice:
        source, next_base = self.source, self.segment.next_base_offset
        size, upper = end.position - first.position, end.next_offset
        if upper is None:
            upper = read_upper_bound(open_source, source, self.segment, position=first.position, size_bytes=size)
        if upper is None:
            upper = next_base
        return LocalSlice(
            path=source.path,
            inode=source.inode,
            position=first.position,
            size_bytes=size,
            base_offset=first.base_offset,
            upper_offset=self.end_offset if upper is None else min(upper, self.end_offset),
        )
