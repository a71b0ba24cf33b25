"""Use of a segment that no metadata knows. Decisions only."""

from collections.abc import Iterable
from enum import Enum

from tierd.model import Lineage, OffsetRange, RemoteLogSegmentMetadata
from tierd.tiering.copy_plan import deleted_records_before, without_range
from tierd.tiering.reading.tiered_log import TieredLog


class OrphanUse(Enum):
    """Gain from the adoption of an orphan."""

    FILLS_GAP = "the tier lacks offsets of it"
    OTHER_BRANCH = "the tier lacks offsets of it, and its leader epochs are not those of this log"
    NOT_COPIED_YET = "offsets of it are in the local log only, and will be copied from there"
    LAST_COPY = "objects of the segments that have its offsets by the metadata are gone: tierd rebuild-metadata uses it"
    NOTHING = "every offset of it is in the tier already, or lies below the log start"


def use_of(orphan: RemoteLogSegmentMetadata, log: TieredLog, lineage: Lineage) -> OrphanUse:
    """Return the use of ``orphan``: the offsets that it would add to the tier.

    Args:
        orphan: the segment as its manifest describes it.
        log: the tier and the local log.
        lineage: the lineage of the log, as far back as it is known. A broker forgets epochs, and rows may be lost.
    """
    first = max(orphan.first_readable_offset, stored_log_start(log))
    if first > orphan.end_offset or is_covered(log, OffsetRange(first, orphan.end_offset)):
        return OrphanUse.NOTHING
    if not is_of_lineage(orphan, lineage, first):
        return OrphanUse.OTHER_BRANCH
    ahead, local_start = max(first, log.remote_end_offset), log.local_start_offset
    is_ahead = orphan.end_offset >= log.remote_end_offset
    if is_ahead and local_start is not None and local_start <= ahead and is_covered_or_ahead(log, first):
        return OrphanUse.NOT_COPIED_YET
    return OrphanUse.FILLS_GAP


def stored_log_start(log: TieredLog) -> int:
    """Return the offset below which no record is wanted; expiration or a request moved it, and never a loss of rows."""
    deleted = deleted_records_before(
        checkpointed=log.log_start_checkpoint,
        segments=log.scan.segments if log.scan else (),
        high_watermark=log.high_watermark,
    )
    return max(log.view.log_start_offset or 0, deleted or 0)


def is_covered_or_ahead(log: TieredLog, first: int) -> bool:
    """Return True if the tier has every offset from ``first`` up to its end, or ends before ``first``."""
    last = log.remote_end_offset - 1
    return first > last or is_covered(log, OffsetRange(first, last))


def lineage_behind_tier(orphan: RemoteLogSegmentMetadata, log: TieredLog) -> Lineage:
    """Return what is known of the epochs of an orphan that no readable remote segment follows.

    Between the end of the tier and the first epoch that the broker remembers, the epochs are unknown: the last epoch of
    the tier need not reach so far. An orphan there gets the local lineage, which has no epoch for its offsets either.
    """
    first = log.scan.lineage.earliest if log.scan else None
    if log.scan is None or first is None:
        return log.lineage
    is_between = log.remote_end_offset <= orphan.first_readable_offset and orphan.end_offset < first.start_offset
    return log.scan.lineage if is_between else log.lineage


def is_of_lineage(segment: RemoteLogSegmentMetadata, lineage: Lineage, first: int) -> bool:
    """Return True if the lineage gives each offset of the segment, from ``first`` on, to the epoch of the segment.

    Below the first entry of the lineage, the segment's epoch only must not be later than that of the first entry.
    """
    starts = {first} | {entry.start_offset for entry in segment.segment_leader_epochs}
    starts |= {entry.start_offset for entry in lineage.entries}
    own = Lineage(segment.segment_leader_epochs)
    inside = [offset for offset in starts if first <= offset <= segment.end_offset]
    return all(_agree(own.epoch_for(offset), lineage, offset) for offset in inside)


def _agree(epoch: int | None, lineage: Lineage, offset: int) -> bool:
    expected, earliest = lineage.epoch_for(offset), lineage.earliest
    if expected is None:
        return epoch is not None and (earliest is None or epoch <= earliest.epoch)
    return epoch == expected


def is_covered(log: TieredLog, wanted: OffsetRange, *, without: RemoteLogSegmentMetadata | None = None) -> bool:
    """Return True if readable remote segments other than ``without`` hold every offset of ``wanted``."""
    offset = wanted.start
    while offset <= wanted.end:
        found = log.remote_segment(offset)
        if found is None or (without is not None and found.segment == without.segment):
            return False
        offset = max(log.readable_end(found, offset), offset + 1)
    return True


def uncovered(gaps: Iterable[OffsetRange], filled: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of ``gaps`` that none of ``filled`` holds, ascending."""
    left = tuple(gaps)
    for each in filled:
        left = without_range(left, each)
    return sorted(left, key=lambda gap: gap.start)
