"""DueSegments: the rolled segments of one log that are not in the tier, held. Their ages, and the stable offset."""

import asyncio
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import structlog

from tierd.errors import CorruptIndexError, MissingArtefactError, SegmentChangedError, TierError
from tierd.files import open_to_read
from tierd.log import PartitionScan, TimeIndex, data_bytes, last_stable_offset, read_producer_snapshot
from tierd.metadata import PartitionView, effective_lineage
from tierd.model import Lineage, OffsetRange
from tierd.tiering.copy_plan import Age, OffsetSpan, first_offset_due, gaps, rolled_after
from tierd.tiering.local.held_segment import HeldSegment, SegmentFile
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.recorder import TieringRecorder

log = structlog.get_logger()

_SCANS_OF_GAP = 3
_ENTRY_BYTES = 12  # of a time index (log-format 3.1)


class DueSegments:
    """Finder of due segments, pass after pass. Each range of offsets that is missing is reported as lost once."""

    def __init__(self, local: PartitionLog, *, recorder: TieringRecorder) -> None:
        self._local = local
        self._recorder = recorder
        self._reported: frozenset[OffsetRange] = frozenset()

    async def find(
        self, *, copied_through: int, log_start_offset: int, holes: Sequence[OffsetRange] = ()
    ) -> list[HeldSegment]:
        """Hold and return the due segments, ascending; offsets before or between them may be missing.

        ``holes``: offsets up to ``copied_through`` that the tier lacks.

        Raises:
            SegmentChangedError: the directory changes at every scan.
        """
        due_from = first_offset_due(copied_through=copied_through, log_start_offset=log_start_offset)
        await self._local.protect(copied_through=due_from - 1, holes=holes)  # the rest below needs no hold
        missing = self._missing(due_from)
        for _ in range(_SCANS_OF_GAP):
            if not missing - self._reported:
                break
            # To step over a segment is for ever. One that the broker renames while it is listed is seen by a second
            # scan, and can still be held.
            await self._local.rescan()
            missing, previous = self._missing(due_from), missing
            if missing == previous:
                self._report(missing - self._reported)
        else:
            if missing - self._reported:
                raise SegmentChangedError(
                    f"{self._local.path}: changes at every scan", remedy="the partition is scanned again"
                )
        return rolled_after(
            self._local.pending, copied_through=copied_through, log_start_offset=log_start_offset, holes=holes
        )

    def _missing(self, due_from: int) -> set[OffsetRange]:
        """Return the offsets that are due, and neither held nor in the log."""
        spans: list[OffsetSpan] = [*self._local.pending, *self._local.scan.segments[-1:]]
        return set(gaps(spans, due_from=due_from))

    def _report(self, lost: Collection[OffsetRange]) -> None:
        self._reported = self._reported.union(lost)
        for gap in sorted(lost, key=lambda gap: gap.start):
            self._recorder.gap_found(self._local.partition.topic, offsets=gap.end - gap.start + 1)
            log.error(
                "segments_lost_before_copy",
                partition=str(self._local.partition),
                first_offset=gap.start,
                last_offset=gap.end,
                remedy="the broker deleted them before tierd saw them: raise its local retention",
            )


def lineage_for(held: HeldSegment, scan: PartitionScan, view: PartitionView) -> Lineage:
    """Return the lineage to copy ``held`` with: the broker's, and what the broker knew at the time of the hold.

    Raises:
        MissingArtefactError: there is no lineage.
    """
    path = scan.directory.path
    if not scan.lineage and not held.lineage:
        raise MissingArtefactError(
            f"{path}: leader-epoch-checkpoint is missing or empty"
            + (f" ({scan.lineage_problem})" if scan.lineage_problem else ""),
            remedy=f"restart the broker, which rebuilds the file; see tierd inspect {path}",
        )
    known = held.lineage
    for epoch, start_offset in scan.lineage.entries:
        known = known.assign(epoch=epoch, start_offset=start_offset)
    return effective_lineage(view, known)


def ages_of(due: Sequence[HeldSegment], scan: PartitionScan) -> list[Age]:
    """Ask the files of ``due``, ascending: for the last entry of each time index, and for the active segment's size.

    Blocking. A segment that the broker has deleted counts as old as can be: only its hold still keeps it.
    """
    live = {segment.base_offset for segment in scan.segments}
    behind = data_bytes(scan.segments[-1]) if scan.segments and scan.segments[-1].next_base_offset is None else 0
    ages = []
    for held in reversed(due):
        ages.append(Age(_largest_timestamp_ms(held) if held.base_offset in live else None, bytes_after=behind))
        behind += held.size_bytes
    return ages[::-1]


def _largest_timestamp_ms(held: HeldSegment) -> int:
    """Return the last timestamp of the time index, else the last append (Kafka: LogSegment.largestTimestamp)."""
    path = held.path(SegmentFile.TIME_INDEX)
    try:
        last = TimeIndex.from_bytes(_tail(path), held.base_offset, str(path)).entries if path else ()
    except (OSError, CorruptIndexError):
        last = ()
    return last[-1].timestamp_ms if last and last[-1].timestamp_ms >= 0 else held.modified_ms


def _tail(path: Path) -> bytes:
    with open_to_read(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _ENTRY_BYTES))
        return file.read()


async def stable_offset(due: Sequence[HeldSegment], scan: PartitionScan, high_watermark: int | None) -> int:
    """Return a bound below which every record is committed and decided; -1 when there is nothing to copy below it.

    The broker takes a producer snapshot at every roll: without an open transaction at the end of the last
    candidate, the last stable offset lies at or above that end, and no batch has to be read.
    """
    below = [held for held in due if high_watermark is not None and held.next_base_offset <= high_watermark]
    if not below or high_watermark is None:
        return -1
    newest = below[-1]
    if await asyncio.to_thread(_without_open_transaction, newest):
        return newest.next_base_offset
    return await asyncio.to_thread(last_stable_offset, scan, high_watermark=high_watermark)


def _without_open_transaction(held: HeldSegment) -> bool:
    path = held.path(SegmentFile.PRODUCER_SNAPSHOT)
    if path is None:
        return False
    try:
        entries = read_producer_snapshot(path)
    except (TierError, OSError):
        return False  # the long way finds out; the copy itself reports what is wrong with it
    return all(entry.current_txn_first_offset < 0 for entry in entries)
