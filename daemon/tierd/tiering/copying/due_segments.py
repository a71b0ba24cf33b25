"""DueSegments: the rolled segments of one log that are not in the tier, each held; and offsets that are lost."""

from collections.abc import Collection, Sequence

import structlog

from tierd.errors import MissingArtefactError, SegmentChangedError
from tierd.log import PartitionScan
from tierd.metadata import PartitionView, effective_lineage
from tierd.model import Lineage, OffsetRange
from tierd.tiering.copy_plan import OffsetSpan, first_offset_due, gaps, rolled_after
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.recorder import TieringRecorder

log = structlog.get_logger()

_LOOKS_AT_GAP = 3


class DueSegments:
    """Finder of due segments, pass after pass. Each range of offsets that is missing is reported as lost once."""

    def __init__(self, local: PartitionLog, *, recorder: TieringRecorder) -> None:
        self._local = local
        self._recorder = recorder
        self._reported: set[OffsetRange] = set()

    async def find(
        self, *, copied_through: int, log_start_offset: int, holes: Sequence[OffsetRange] = ()
    ) -> list[HeldSegment]:
        """Hold and return what is due, ascending, whatever is missing before or between it.

        ``holes``: offsets up to ``copied_through`` that the tier lacks.

        Raises:
            SegmentChangedError: the directory changes at every look.
        """
        due_from = first_offset_due(copied_through=copied_through, log_start_offset=log_start_offset)
        await self._local.protect(copied_through=due_from - 1, holes=holes)  # the rest below needs no hold
        missing = self._missing(due_from)
        for _ in range(_LOOKS_AT_GAP):
            if not missing - self._reported:
                break
            # To step over a segment is for ever: one that the broker renames while it is listed is seen by a second
            # look, and it can still be held.
            await self._local.look()
            missing, previous = self._missing(due_from), missing
            if missing == previous:
                self._report(missing - self._reported)
        else:
            if missing - self._reported:
                raise SegmentChangedError(f"{self._local.path}: changes at every look", remedy="it is looked at again")
        return rolled_after(
            self._local.pending, copied_through=copied_through, log_start_offset=log_start_offset, holes=holes
        )

    def _missing(self, due_from: int) -> set[OffsetRange]:
        """Return the offsets that are due, and neither held nor in the log."""
        spans: list[OffsetSpan] = [*self._local.pending, *self._local.scan.segments[-1:]]
        return set(gaps(spans, due_from=due_from))

    def _report(self, lost: Collection[OffsetRange]) -> None:
        self._reported.update(lost)
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
