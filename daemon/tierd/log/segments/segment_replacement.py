"""Replacement of old segments by new ones; after a crash either set is whole (log-format 6.5).

::

    x.log.cleaned  ──►  x.log.swap  ──►  x.log          new, in descending order first, in ascending order then
                   old: x.log  ──►  x.log.deleted       in between

A ``.cleaned`` file proves to the next load that nothing was replaced yet. Without one the ``.swap`` files are complete,
and the load completes the replacement. This needs a file system that keeps the order of renames in a directory.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import CorruptRecordError
from tierd.log.files.disk import Disk, Readable, unlink_if_there
from tierd.log.files.partition_scan import file_name
from tierd.log.records.batch_header import BatchHeader, iter_headers
from tierd.log.records.log_config import MAX_INT
from tierd.log.records.record_batch import read_batch
from tierd.log.segments.leftovers import CLEANED, DELETED, SWAP
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.log_segments import LogSegments
from tierd.log.segments.pending_deletions import PendingDeletions

_CHUNK_BYTES = 1 << 20
SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def segment_names(base_offset: int, suffix: str = "") -> list[str]:
    """Return the names that the files of a segment may have."""
    return [file_name(base_offset, kind + suffix) for kind in SEGMENT_SUFFIXES]


def mark_deleted(segment: LogSegment, deletions: PendingDeletions, *, due_ms: int) -> None:
    """Rename a segment's files to ``.deleted``, to be unlinked at ``due_ms`` (Kafka: LocalLog.deleteSegmentFiles).

    Raises:
        OSError: the disk is failing.
    """
    segment.close_handles()
    if segment.path.suffix != DELETED:
        segment.change_suffix("", DELETED)
    deletions.add(segment_names(segment.base_offset, DELETED), due_ms=due_ms)


def replace_segments(
    disk: Disk,
    directory: Path,
    segments: LogSegments,
    *,
    new: Iterable[LogSegment],
    old: Iterable[LogSegment],
    deletions: PendingDeletions,
    due_ms: int,
) -> list[LogSegment]:
    """Put ``new``, whose files end with ``.cleaned`` and are synced, in the place of ``old`` (Kafka: replaceSegments).

    Args:
        disk: where the files are.
        directory: the partition's.
        segments: the log's; changed.
        new: at least one; together they hold the kept records of ``old``.
        old: those that were removed meanwhile are passed over.
        deletions: takes the files of ``old``.
        due_ms: when they go.

    Returns:
        The segments of ``old`` whose base offset no segment has any more; their producer snapshots have to go, too.

    Raises:
        OSError: the disk is full or failing; the next load finishes or undoes the replacement.
    """
    ascending = sorted(new, key=lambda segment: segment.base_offset)
    _remove_stale_outputs(disk, directory, ascending)
    present = [segment for segment in old if segments.get(segment.base_offset) is segment]
    for segment in reversed(ascending):
        segment.change_suffix(CLEANED, SWAP)
    for segment in present:
        segments.remove(segment.base_offset)
    for segment in ascending:
        segments.add(segment)
    for segment in present:
        mark_deleted(segment, deletions, due_ms=due_ms)
    for segment in ascending:
        segment.change_suffix(SWAP, "")
    disk.sync_directory(directory)
    return [segment for segment in present if segment.base_offset not in segments]


def _remove_stale_outputs(disk: Disk, directory: Path, new: Iterable[LogSegment]) -> None:
    """Remove the files of a replacement that never began.

    Beside ``.swap`` files it would tell the next load that these are not whole, and the load would undo a replacement
    whose old segments are gone already.
    """
    expected = {name for segment in new for name in segment_names(segment.base_offset, CLEANED)}
    stale = [name for name in disk.list_names(directory) if name.endswith(CLEANED) and name not in expected]
    for name in stale:
        unlink_if_there(disk, directory / name)
    if stale:
        disk.sync_directory(directory)


@dataclass(frozen=True, slots=True)
class SplitResult:
    """Result of the split of a segment.

    Attributes:
        added: new segments, ascending; the log has them already.
        removed: the segment that was split, unless one of ``added`` has its base offset.
    """

    added: tuple[LogSegment, ...]
    removed: tuple[LogSegment, ...]


def split_overflowed(
    disk: Disk,
    segments: LogSegments,
    segment: LogSegment,
    *,
    open_cleaned: Callable[[int], LogSegment],
    deletions: PendingDeletions,
    due_ms: int,
) -> SplitResult:
    """Spread a segment over several, so that every offset fits its segment's base (Kafka: splitOverflowedSegment).

    Args:
        disk: where the files are.
        segments: the log's; changed.
        segment: one of them.
        open_cleaned: makes an empty segment at a base offset, its names ending with ``.cleaned``.
        deletions: takes the files of ``segment``.
        due_ms: when they go.

    Raises:
        ValueError: nothing in the segment overflows.
        CorruptRecordError: it does not end with a whole batch.
        OSError: the disk is full or failing; nothing has changed.
    """
    if not segment.has_overflow:
        raise ValueError(f"{segment.path}: every offset fits the segment, there is nothing to split")
    status = disk.status(segment.path)
    made: list[LogSegment] = []

    def made_at(base_offset: int) -> LogSegment:
        made.append(open_cleaned(base_offset))
        return made[-1]

    try:
        _copy_all(disk, segment, made_at)
        for copy in made:
            copy.finish()
            copy.flush()
            if status is not None:
                disk.set_mtime_ms(copy.path, status.mtime_ms)
    except BaseException:
        for copy in made:
            copy.delete_files()
        raise
    removed = replace_segments(
        disk, segment.path.parent, segments, new=made, old=[segment], deletions=deletions, due_ms=due_ms
    )
    return SplitResult(tuple(made), tuple(removed))


def _copy_all(disk: Disk, segment: LogSegment, open_cleaned: Callable[[int], LogSegment]) -> None:
    source = disk.open(segment.path, write=False)
    try:
        position = 0
        while position < source.size_bytes:
            first = next(iter_headers(source, position=position), None)
            if first is None:
                raise CorruptRecordError(segment.path, position, "an incomplete batch, in a segment to be split")
            copied = append_from(open_cleaned(_first_offset(source, first)), source, position)
            if not copied:
                raise CorruptRecordError(segment.path, position, "a batch that no segment can hold")
            position += copied
    finally:
        source.close()


def append_from(segment: LogSegment, source: Readable, position: int) -> int:
    """Copy whole batches from ``position`` on, chunk by chunk, while their offsets are within reach of the base.

    Kafka: LogSegment.appendFromFile.

    Returns:
        Number of bytes copied.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        OSError: the disk is full or failing.
    """
    start = position
    while chunk := _chunk(segment, source, position):
        largest = max(chunk, key=lambda batch: batch.max_timestamp_ms)
        segment.append(
            [source.read(position, chunk[-1].end_position - position)],
            chunk,
            largest_offset=chunk[-1].last_offset,
            max_timestamp_ms=largest.max_timestamp_ms,
            shallow_offset=largest.last_offset,
        )
        segment.write_out()
        position = chunk[-1].end_position
    return position - start


def _chunk(segment: LogSegment, source: Readable, position: int) -> list[BatchHeader]:
    """Return the next batches that fit into a chunk; the first one in any case."""
    chunk: list[BatchHeader] = []
    for batch in iter_headers(source, position=position):
        is_near = 0 <= batch.last_offset - segment.base_offset <= MAX_INT
        if not is_near or (chunk and batch.end_position - position >= _CHUNK_BYTES):
            break
        chunk.append(batch)
    return chunk


def _first_offset(source: Readable, batch: BatchHeader) -> int:
    """Return the first offset of a batch. A compressed legacy entry gives its last offset only, and is opened."""
    if batch.magic >= 2 or not batch.attributes & 7:
        return batch.base_offset
    return next(read_batch(source, batch).records()).offset
