"""Rolled segments of a scan with their files, and checks that a held segment is still part of the log."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tierd.errors import SegmentChangedError, TierError
from tierd.log import (
    PartitionScan,
    SegmentFiles,
    file_name,
    find_log_end_offset,
    find_segment_end_offset,
    segment_at,
)
from tierd.tiering.copy_plan import OffsetSpan
from tierd.tiering.local.held_segment import DELETED_SUFFIX, FileState, HeldSegment, HoldKind, SegmentFile

_ARTEFACTS: dict[frozenset[SegmentFile], frozenset[SegmentFile]] = {}  # equal sets shared: thousands are alike


def is_superseded(held: HeldSegment, scan: PartitionScan) -> bool:
    """Return True if the log has no such segment any more for another reason than retention. Asks the file system once.

    Retention deletes from the front, and what it deleted is still history. A segment that was compacted, truncated
    away or rewritten is not: its offsets lie among those of the live segments, which do not contain it.
    """
    if not scan.segments:
        return False
    live = segment_at(scan.segments, held.base_offset)
    if live is None:
        return held.next_base_offset > scan.segments[0].base_offset or _was_begun_anew(held, scan)
    if live.next_base_offset != held.next_base_offset:
        return True
    try:
        return FileState.of(live.log).inode != held.log_file.inode
    except SegmentChangedError:
        return False  # deleted since the listing; the next one decides


def _was_begun_anew(held: HeldSegment, scan: PartitionScan) -> bool:
    """Return whether ``held`` is an empty active segment that was taken while a broker put the first one behind it."""
    return not held.log_file.size_bytes and _may_begin_anew_at(held.next_base_offset, scan)


def rolled_segments(scan: PartitionScan) -> Iterable[SegmentFiles]:
    """Yield the rolled segments of the log, ascending: those that retention is deleting, then the live ones.

    Blocking where the last one that is being deleted may be the active segment of a log that began anew.
    """
    live = {segment.base_offset for segment in scan.segments}
    first = scan.segments[0].base_offset if scan.segments else None
    for segment in scan.deleted_segments:
        # Anything else with this suffix was replaced by compaction or cut off by truncation.
        retained = first is None or (segment.next_base_offset is not None and segment.next_base_offset <= first)
        if segment.next_base_offset is not None and segment.base_offset not in live and retained:
            known = _as_far_as_known(segment, scan)
            if known is not None:
                yield known
    for segment in scan.segments:
        if segment.next_base_offset is not None:
            yield segment


def _as_far_as_known(segment: SegmentFiles, scan: PartitionScan) -> SegmentFiles | None:
    """Return a segment that is being deleted with the end that is certain; None if it has no batch up to there.

    By the names, the last segment of a log that began anew would reach up to there, over offsets that it never had.
    """
    if segment.next_base_offset is None or not _may_begin_anew_at(segment.next_base_offset, scan):
        return segment
    try:
        end = find_segment_end_offset(segment)
    except TierError:
        return segment  # gone, or damaged: the reader of its content raises that
    if end == segment.base_offset:
        return None
    return replace(segment, next_base_offset=min(end, segment.next_base_offset))


def _may_begin_anew_at(offset: int, scan: PartitionScan) -> bool:
    """Return whether ``offset`` begins the log, and no snapshot shows that a segment below was rolled there.

    A log that a broker cuts off whole begins anew anywhere above, with no snapshot (LocalLog.truncateFullyAndStartAt):
    a follower that has fallen behind the log start of its leader, and a replica on the way to another log dir.
    """
    return bool(scan.segments) and offset == scan.segments[0].base_offset and offset not in scan.snapshots


def require_as_listed(plain: HeldSegment, segment: SegmentFiles) -> None:
    """Make sure that what was just taken of the live log is what was listed: this log, and the next one behind it.

    A broker that compacts puts one log in the place of several, under the name of the first: taken by an older
    listing, it would have an end that is not its own. One that is being deleted is replaced no more. Blocking.

    Raises:
        SegmentChangedError: the log is another one by now, or is being replaced.
    """
    if segment.deleted or SegmentFile.LOG in plain.renamed:
        return
    successor = f"{segment.directory}/{file_name(plain.next_base_offset, '.log')}"
    if FileState.of(segment.log).inode != plain.log_file.inode or not _exists(successor):
        raise SegmentChangedError(
            f"{segment.log}: replaced before it could be held", remedy="the partition is scanned again"
        )


def as_it_ends(segment: SegmentFiles, scan: PartitionScan) -> SegmentFiles:
    """Return a segment that retention is deleting with its true end. Blocking.

    By the names a segment ends where the next one begins. A segment that compaction made of several reaches beyond
    that, while the names of the several are still there.
    """
    assert segment.next_base_offset is not None, "rolled segments have an end"
    try:
        end = find_segment_end_offset(segment)
    except TierError:
        return segment  # gone, or damaged: its reader reports that
    if end <= segment.next_base_offset:
        return segment
    bases = (each.base_offset for each in (*scan.deleted_segments, *scan.segments))
    return replace(segment, next_base_offset=min((base for base in bases if base >= end), default=end))


def is_within(segment: OffsetSpan, sources: Iterable[HeldSegment]) -> bool:
    """Return True if a source holds every offset of ``segment``."""
    end = segment.next_base_offset or 0
    return any(each.base_offset <= segment.base_offset and end <= each.next_base_offset for each in sources)


class CoveredOffsets:
    """Offsets that sources hold, asked for by segments in ascending order: each source is then looked at once."""

    def __init__(self, sources: Iterable[HeldSegment]) -> None:
        self._ahead = sorted(((each.base_offset, each.next_base_offset) for each in sources), reverse=True)
        self._end = -1  # exclusive, the furthest of the sources that begin at or below the last segment asked for

    def has_all_of(self, segment: OffsetSpan) -> bool:
        """Return True if one source holds every offset of ``segment``, which does not begin below the one before."""
        while self._ahead and self._ahead[-1][0] <= segment.base_offset:
            self._end = max(self._end, self._ahead.pop()[1])
        return (segment.next_base_offset or 0) <= self._end

    def add(self, source: HeldSegment) -> None:
        """Add a source that begins where the segment that was asked for last begins."""
        self._end = max(self._end, source.next_base_offset)


def is_cut_off(held: HeldSegment, scan: PartitionScan) -> bool:
    """Return True if the log ends below the end of ``held``: truncation has taken offsets of it away."""
    return bool(scan.segments) and held.next_base_offset > scan.segments[-1].base_offset


def is_empty(scan: PartitionScan) -> bool:
    """Return True if the log has no record, which proves nothing about the records of before, or cannot be read now.

    A replica whose directory was lost is empty until it has fetched. Blocking.
    """
    if len(scan.segments) != 1:
        return False
    try:
        return find_log_end_offset(scan) == scan.segments[0].base_offset
    except TierError:
        return True


def unprotected(segment: SegmentFiles, scan: PartitionScan) -> HeldSegment:
    """Describe the segment where the broker has it. Blocking.

    Raises:
        SegmentChangedError: the log of the segment is not there any more.
    """
    assert segment.next_base_offset is not None, "rolled segments have an end"
    present, renamed = files_present(
        segment.directory, base_offset=segment.base_offset, next_base_offset=segment.next_base_offset
    )
    return replace(log_of(segment, scan), present=present, renamed=renamed)


def log_of(segment: SegmentFiles, scan: PartitionScan) -> HeldSegment:
    """Describe the segment where the broker has it, by its log alone: no other file is asked for. Blocking.

    Raises:
        SegmentChangedError: the log of the segment is not there any more.
    """
    assert segment.next_base_offset is not None, "rolled segments have an end"
    return HeldSegment(
        base_offset=segment.base_offset,
        next_base_offset=segment.next_base_offset,
        kind=HoldKind.NONE,
        root=str(segment.directory),
        log_file=FileState.of(segment.log),
        lineage=scan.lineage,
        present=frozenset(),
    )


def files_present(
    directory: Path, *, base_offset: int, next_base_offset: int
) -> tuple[frozenset[SegmentFile], frozenset[SegmentFile]]:
    """Return the files that exist, and those of them that the broker has marked for deletion."""
    found, renamed = [], []
    for file in SegmentFile:
        path = f"{directory}/{file.name_for(base_offset=base_offset, next_base_offset=next_base_offset)}"
        if _exists(path):
            found.append(file)
        elif _exists(path + DELETED_SUFFIX):
            found.append(file)
            renamed.append(file)
    return shared_files(found), shared_files(renamed)


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - up to ten calls per segment of thousands


def shared_files(files: Iterable[SegmentFile]) -> frozenset[SegmentFile]:
    """Return ``files`` as a set; equal sets are the same object."""
    artefacts = frozenset(files)
    return _ARTEFACTS.setdefault(artefacts, artefacts)
