"""Comparison of a standby's copy with the tier by offsets and leader epochs.

::

    tier       [ 100 ............ 1,000 )
    standby          [ 400 .............. 1,180 )    both: [ 400 , 1,000 )   beyond the tier: [ 1,000 , 1,180 )
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tierd.tiering.auditing.tier_findings import Finding, Severity
from tierd.tiering.reading.tiered_log import TieredLog
from tierd.tiering.standbys.standby_copy import BatchEpoch, StandbyCopy

DIVERGED = "let its tierd run and reach the leader: it cuts what differs; a copy that stays so is deleted and made anew"


@dataclass(frozen=True, slots=True)
class CopyCompared(Finding):
    """Note on the offsets that a copy and the tier have. It is no fault.

    Attributes:
        partition: name of the partition.
        tier_start_offset: first offset of the tier.
        tier_end_offset: exclusive end of the tier.
        standby_start_offset: first offset of the copy.
        standby_end_offset: exclusive end of the copy.
        compared_records: number of offsets that have a record on both sides, where records were compared.
    """

    partition: str = ""
    tier_start_offset: int = 0
    tier_end_offset: int = 0
    standby_start_offset: int = 0
    standby_end_offset: int = 0
    compared_records: int | None = None


@dataclass(frozen=True, slots=True)
class CommonOffsets:
    """Offsets ``[start, end)`` that a copy and the tier both cover; empty where ``end`` is not above ``start``."""

    start: int
    end: int

    @classmethod
    def of(cls, tier: TieredLog, copy: StandbyCopy) -> "CommonOffsets":
        """Return the common offsets of a tier, read without a local log, and a copy."""
        if not tier.finished:
            return cls(0, 0)
        start = max(tier.log_start_offset, copy.log_start_offset)
        return cls(start, max(start, min(tier.remote_end_offset, copy.end_offset)))

    def __bool__(self) -> bool:
        return self.start < self.end


def compared(tier: TieredLog, copy: StandbyCopy, records: int | None) -> CopyCompared:
    """Return the note on one copy. ``records`` is the number of records that were compared; None where none were."""
    common, end = CommonOffsets.of(tier, copy), tier.remote_end_offset
    said = [f"{tier.partition.topic_partition}: offsets {_range(copy.log_start_offset, copy.end_offset)}"]
    said.append(f"the tier has {_range(tier.log_start_offset, end) if tier.finished else 'none'}")
    if common:
        said.append(f"both have {_range(common.start, common.end)}")
    beyond = max(end, copy.log_start_offset) if tier.finished else copy.log_start_offset
    if copy.end_offset > beyond:
        said.append(f"{copy.end_offset - beyond} beyond the tier")
    if records is not None:
        said.append(f"{records} records are equal")
    return CopyCompared(
        Severity.NOTE,
        "standby-compared",
        "; ".join(said),
        copy.place,
        "nothing to do",
        partition=str(tier.partition.topic_partition),
        tier_start_offset=tier.log_start_offset if tier.finished else 0,
        tier_end_offset=end,
        standby_start_offset=copy.log_start_offset,
        standby_end_offset=copy.end_offset,
        compared_records=records,
    )


def offset_findings(tier: TieredLog, copy: StandbyCopy) -> Iterator[Finding]:
    """Yield a finding where the copy ends before the tier, or begins so late that offsets are in neither."""
    end = tier.remote_end_offset
    if not tier.finished:
        return
    if copy.end_offset < end:
        what = f"it ends at {copy.end_offset}, the tier at {end}: {end - copy.end_offset} offsets behind"
        remedy = "tierd status on the standby and on the leader says why it does not follow"
        yield Finding(Severity.WARNING, "standby-behind", what, copy.place, remedy)
    if copy.log_start_offset > end:
        what = f"offsets {_range(end, copy.log_start_offset)} are neither in the tier nor in the copy"
        remedy = "they are on the broker alone: see in tierd status why nothing is copied to the tier"
        yield Finding(Severity.WARNING, "standby-gap", what, copy.place, remedy)


def epoch_findings(tier: TieredLog, copy: StandbyCopy) -> Iterator[Finding]:
    """Yield a finding for the first offset that another leader epoch wrote in the copy than in the tier. Blocking.

    Compared are the copy's ``leader-epoch-checkpoint``, and the batches at which an epoch begins on either side. A
    cleaner may have removed the first batches of an epoch, or all: a copy made after that has the epoch later, or not.

    Raises:
        LogError: as ``StandbyCopy.batch_from``.
    """
    if copy.scan.lineage_problem is not None and copy.end_offset > copy.log_start_offset:
        problem = f"its leader epochs cannot be read: {copy.scan.lineage_problem}"
        remedy = "restart its tierd, which takes them from the batches; a restore does not join the copy without them"
        yield Finding(Severity.ERROR, "standby-damage", problem, copy.place, remedy)
    common = CommonOffsets.of(tier, copy)
    noted = [BatchEpoch(entry.start_offset, entry.epoch) for entry in copy.scan.lineage.entries]
    for found in (*noted, *_batches_at_epochs(tier, copy, common)):
        if not common.start <= found.base_offset < common.end or found.leader_epoch < 0:
            continue
        ours = tier.lineage.epoch_for(found.base_offset)
        if ours is not None and ours != found.leader_epoch:
            what = f"leader epoch {found.leader_epoch} wrote offset {found.base_offset}, in the tier epoch {ours} did"
            yield Finding(Severity.ERROR, "standby-diverged", what, copy.place, DIVERGED)
            return


def _batches_at_epochs(tier: TieredLog, copy: StandbyCopy, common: CommonOffsets) -> Iterator[BatchEpoch]:
    if not common:
        return
    lineages = (
        tier.lineage.entries_in(common.start, common.end),
        copy.scan.lineage.entries_in(common.start, common.end),
    )
    starts = {entry.start_offset for lineage in lineages for entry in lineage.entries}
    for offset in sorted({common.start, common.end - 1, *starts}):
        if (found := copy.batch_from(offset)) is not None:
            yield found


def _range(start: int, end: int) -> str:
    return f"{start} to {end - 1}" if end > start else "none"
