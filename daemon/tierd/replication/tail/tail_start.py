"""Places in a broker's log at which tail mode begins, or goes on after a change of the files. Blocking; reads only."""

from dataclasses import replace
from typing import Final

from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log import (
    OVERHEAD_BYTES,
    BatchHeader,
    PartitionDirectory,
    PartitionScan,
    SegmentFiles,
    Source,
    floor_index,
    indexed_position,
    iter_headers,
    open_source,
    scan_partition,
)
from tierd.model import Lineage
from tierd.replication.tail.tail_values import LastBatch, TailPosition, segment_end_offset
from tierd.replication.tail.whole_batches import TailStop, whole_batches

_CHUNK_BYTES: Final = 1 << 20
_NO_LIMIT: Final = (1 << 63) - 1
_PRODUCER_ID: Final = slice(43, 51)
_BASE_SEQUENCE: Final = slice(53, 57)
_LASTING: Final = (  # of a batch of format 2, whatever a cleaner does to it
    slice(0, 8),  # base offset
    slice(12, 17),  # leader epoch, magic
    slice(23, 27),  # last offset delta
    slice(43, 57),  # producer id, producer epoch, base sequence
)


def begin_tail(directory: PartitionDirectory, *, limit_offset: int | None) -> TailPosition:
    """Return the place behind the last whole batch of the log that lies below the limit.

    Raises:
        SegmentChangedError: the directory is gone or has no segment yet, or the broker is replacing segments.
        LogDirOfflineError: a file cannot be read.
    """
    scan = scan_partition(directory)
    if not scan.segments:
        raise SegmentChangedError(f"{directory.path}: no segment yet", remedy="nothing to do: it is looked at again")
    limit = _NO_LIMIT if limit_offset is None else limit_offset
    segment = scan.segments[max(floor_index(scan.segments, limit - 1), 0)]
    with open_source(segment.log) as source:
        begin = indexed_position(open_source, source, segment, limit - 1)
        end = _batches_end(source, segment, begin, limit)
        if begin and end.last is None:
            end = _batches_end(source, segment, 0, limit)
        inode = source.inode
    return TailPosition(
        directory=directory,
        directory_mtime_ns=scan.mtime_ns,
        first_base=scan.segments[0].base_offset,
        segment_base=segment.base_offset,
        next_base=segment.next_base_offset,
        inode=inode,
        position=end.position,
        next_offset=end.next_offset,
        last=end.last,
        lineage=scan.lineage,
    )


class _BatchesEnd:
    """The end of the whole batches of a segment, while it is searched for."""

    def __init__(self, position: int, next_offset: int) -> None:
        self.position = position
        self.next_offset = next_offset
        self.last: LastBatch | None = None


def _batches_end(source: Source, segment: SegmentFiles, position: int, limit: int) -> _BatchesEnd:
    end, step = _BatchesEnd(position, segment.base_offset), _CHUNK_BYTES
    end_offset = segment_end_offset(segment.base_offset, segment.next_base_offset)
    while data := source.read(end.position, step):
        found = whole_batches(data, next_offset=end.next_offset, end_offset=end_offset, limit_offset=limit)
        if found.last_at >= 0:
            header = data[found.last_at : min(found.last_at + OVERHEAD_BYTES, found.size_bytes)]
            end.last = LastBatch(segment.base_offset, end.position + found.last_at, header)
        end.position, end.next_offset = end.position + found.size_bytes, found.next_offset
        is_cut_by_step = found.stop is TailStop.TORN and found.wanted_bytes <= source.size_bytes - end.position
        if found.stop is not TailStop.END and not (is_cut_by_step and len(data) == step):
            break
        step = max(_CHUNK_BYTES, found.wanted_bytes)
    return end


def rejoin_tail(position: TailPosition, scan: PartitionScan) -> TailPosition | None:
    """Return the same place in the files of ``scan``; None when the records before it may have changed.

    The files change, and the records do not, when the broker compacts segments or moves the log to another log dir.

    Raises:
        SegmentChangedError: a file vanished meanwhile.
        LogDirOfflineError: a file cannot be read.
    """
    index = floor_index(scan.segments, position.next_offset)
    if index < 0:
        return None
    segment = scan.segments[index]
    with open_source(segment.log) as source:
        before, following = _neighbours(source, segment, position.next_offset)
        if following is not None and following.base_offset < position.next_offset:
            return None
        at = following.position if following is not None else before.end_position if before is not None else 0
        last = position.last
        if before is not None and before.last_offset + 1 == position.next_offset:
            last = _last_batch(source, segment, before)
        elif following is None and segment.next_base_offset is None and position.next_offset > segment.base_offset:
            return None  # the log ends before the place
        elif before is None and index and last is not None:
            last = _last_of(scan.segments[index - 1], position.next_offset) or last
        if position.last is not None and last is not None and not _is_same_batch(last.header, position.last.header):
            return None
        return replace(
            position,
            directory=scan.directory,
            segment_base=segment.base_offset,
            inode=source.inode,
            position=at,
            last=last,
            drained=None,
        )


def _is_same_batch(header: bytes, before: bytes) -> bool:
    """Return True if two headers are of one batch; a cleaner may have taken records out of it.

    A cleaned batch keeps its offsets, its epoch and what names it among the batches of its producer. A batch without a
    sequence, such as a marker, cannot be told from one that took its place.
    """
    if header == before or len(header) != OVERHEAD_BYTES or not _has_sequence(header):
        return header == before
    return all(header[part] == before[part] for part in _LASTING)


def _has_sequence(header: bytes) -> bool:
    return all(int.from_bytes(header[part], "big", signed=True) >= 0 for part in (_PRODUCER_ID, _BASE_SEQUENCE))


def _last_of(segment: SegmentFiles, next_offset: int) -> LastBatch | None:
    """Return the batch before ``next_offset``, if a segment ends with it; compaction may have removed it."""
    with open_source(segment.log) as source:
        before, _ = _neighbours(source, segment, next_offset)
        is_found = before is not None and before.last_offset + 1 == next_offset
        return _last_batch(source, segment, before) if is_found and before is not None else None


def _last_batch(source: Source, segment: SegmentFiles, header: BatchHeader) -> LastBatch:
    size = min(OVERHEAD_BYTES, header.size_bytes)
    return LastBatch(segment.base_offset, header.position, source.read(header.position, size))


def _neighbours(
    source: Source, segment: SegmentFiles, next_offset: int
) -> tuple[BatchHeader | None, BatchHeader | None]:
    """Return the batch before ``next_offset``, and the batch that holds ``next_offset`` or follows it."""
    before = None
    begin = indexed_position(open_source, source, segment, next_offset - 1) if next_offset > segment.base_offset else 0
    try:
        for header in iter_headers(source, position=begin):
            if header.last_offset >= next_offset:
                return before, header
            before = header
    except CorruptRecordError:
        pass  # unused room, or a batch that the broker is writing
    return before, None


def has_same_epochs(own: Lineage, other: Lineage, *, start: int, end: int) -> bool:
    """Return True if both lineages have the same epochs for the offsets of ``[start, end)`` of which both know."""
    firsts = [each.earliest.start_offset for each in (own, other) if each.earliest is not None]
    start = max([start, *firsts])  # a broker forgets the epochs below the log start, which may lie inside of a segment
    if start >= end or not own:  # no epochs: the oldest formats have none
        return True
    mine, theirs = ([entry for entry in each.entries if start < entry.start_offset < end] for each in (own, other))
    return mine == theirs and all(own.epoch_for(at) == other.epoch_for(at) for at in (start, end - 1))
