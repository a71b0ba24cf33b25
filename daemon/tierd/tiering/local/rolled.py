"""Which segments of a scan have rolled, what files they have, and whether a held one is still part of the log."""

import os
from collections.abc import Iterable
from pathlib import Path

from tierd.errors import SegmentChangedError
from tierd.log import PartitionScan, SegmentFiles
from tierd.tiering.local.held_segment import DELETED_SUFFIX, FileState, HeldSegment, HoldKind, SegmentFile

_ARTEFACTS: dict[frozenset[SegmentFile], frozenset[SegmentFile]] = {}  # equal sets shared: thousands are alike


def is_superseded(held: HeldSegment, scan: PartitionScan) -> bool:
    """Whether the log has no such segment any more for another reason than retention. Asks the file system once.

    Retention deletes from the front, and what it deleted is still history. A segment that was compacted, truncated
    away or rewritten is not: its offsets lie among those of the live segments, which do not contain it.
    """
    if not scan.segments:
        return False
    live = next((s for s in scan.segments if s.base_offset == held.base_offset), None)
    if live is None:
        return held.next_base_offset > scan.segments[0].base_offset
    if live.next_base_offset != held.next_base_offset:
        return True
    try:
        return FileState.of(live.log).inode != held.log_file.inode
    except SegmentChangedError:
        return False  # deleted since the listing; the next one decides


def rolled_segments(scan: PartitionScan) -> Iterable[SegmentFiles]:
    """Rolled segments of the log, ascending: those that retention is deleting, then the live ones."""
    live = {segment.base_offset for segment in scan.segments}
    first = scan.segments[0].base_offset if scan.segments else None
    for segment in scan.deleted_segments:
        # Anything else with this suffix was replaced by compaction or cut off by truncation.
        retained = first is None or (segment.next_base_offset is not None and segment.next_base_offset <= first)
        if segment.next_base_offset is not None and segment.base_offset not in live and retained:
            yield segment
    for segment in scan.segments:
        if segment.next_base_offset is not None:
            yield segment


def unprotected(segment: SegmentFiles, scan: PartitionScan) -> HeldSegment:
    """Describe the segment where the broker has it. Blocking.

    Raises:
        SegmentChangedError: its log is not there any more.
    """
    assert segment.next_base_offset is not None, "rolled segments have an end"
    present, renamed = files_present(
        segment.directory, base_offset=segment.base_offset, next_base_offset=segment.next_base_offset
    )
    return HeldSegment(
        base_offset=segment.base_offset,
        next_base_offset=segment.next_base_offset,
        kind=HoldKind.NONE,
        root=str(segment.directory),
        log_file=FileState.of(segment.log),
        lineage=scan.lineage,
        renamed=renamed,
        present=present,
    )


def files_present(
    directory: Path, *, base_offset: int, next_base_offset: int
) -> tuple[frozenset[SegmentFile], frozenset[SegmentFile]]:
    """The files that exist, and those of them that the broker has marked for deletion."""
    found, renamed = [], []
    for file in SegmentFile:
        path = f"{directory}/{file.name_for(base_offset=base_offset, next_base_offset=next_base_offset)}"
        if _exists(path):
            found.append(file)
        elif _exists(path + DELETED_SUFFIX):
            found.append(file)
            renamed.append(file)
    return _shared(found), _shared(renamed)


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - up to ten calls per segment of thousands


def _shared(files: Iterable[SegmentFile]) -> frozenset[SegmentFile]:
    artefacts = frozenset(files)
    return _ARTEFACTS.setdefault(artefacts, artefacts)
