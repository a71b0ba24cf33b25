"""Partition directories that a restore joins to the tier: what is left on the old disk, and the copies of standbys.

Decisions only, from what the directories say of themselves; the restore checks every batch that it takes.

::

    tier        [ 0 .............. 1,000 )
    old disk                  [ 900 ...... 1,150 )      taken: [ 1,000 , 1,150 )
    standby               [ 800 ............. 1,180 )   taken: [ 1,150 , 1,180 )
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tierd.model import Lineage
from tierd.restore.plan.log_branches import LogBranch, ends_on_newest
from tierd.restore.plan.partition_plan import MissingRange, PartitionPlan, PlanFinding, PlannedJoin, PlanSeverity


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSource:
    """One directory of the partition.

    Attributes:
        is_existing: it is the one that the restore replaces: without the tier and without a standby it stays as it is.
        directory: of the partition.
        log_start_offset: first offset that readers may have.
        first_offset: base offset of the first batch that readers may have; it may lie below the log start.
        end_offset: exclusive end of the batches, as far as they can be walked.
        cleaned_offset: exclusive end of what a log cleaner has cleaned.
        lineage: leader epochs of the batches; empty where they are not known.
    """

    directory: Path
    is_existing: bool
    log_start_offset: int
    first_offset: int
    end_offset: int
    cleaned_offset: int
    lineage: Lineage


def join_sources(plan: PartitionPlan, sources: Sequence[JoinSource]) -> PartitionPlan:
    """Return ``plan`` with what each directory is expected to contribute beyond the end of the tier.

    Where the tier has no records, the log of a directory is the restored log. So it is for a compacted topic whose
    directory reaches further and was cleaned beyond the end of the tier: joined to the tier, keys that were deleted
    would come back (changelog-restore 3.4). And so it is where the log start of a standby lies beyond all that can be
    joined to the tier; a finding says so. Records that a newer leader has replaced, as the tier or another directory
    shows, are taken from no directory, however far it reaches.
    """
    if not plan.parts and all(each.is_existing for each in sources):
        return plan
    known_end = max((each.end_offset for each in sources), default=0)
    whole, sources = sources, _on_newest_branch(plan, sources)
    plan = replace(plan, findings=(*plan.findings, *_replaced(whole, sources)))
    plan = _begun_by_a_source(plan, _whole_log(plan, sources))
    joins = _joins(plan, sources)
    if plan.parts and (begins := _better_than_the_tier(plan, joins, sources)) is not None:
        plan = _begun_by_a_source(_without_the_tier(plan, joins, begins), begins)
        joins = _joins(plan, sources)
    end = _reached(plan, joins)
    missing = [each for each in (_above(each, end) for each in plan.missing) if each is not None]
    findings = plan.findings
    if not plan.parts and not joins:
        text = "neither the tier nor a standby has records of it"
        findings = (*findings, PlanFinding(PlanSeverity.LEFT_OUT, text, "look at tierd segments"))
    return replace(
        plan,
        joins=joins,
        missing=tuple(missing),
        findings=findings,
        known_end_offset=max(plan.known_end_offset, known_end),
    )


def is_joined(end_offset: int, lineage: Lineage, source: JoinSource, *, is_compacted: bool) -> bool:
    """Return True if the batches of ``source`` go on where a log with ``lineage`` ends."""
    if source.end_offset <= end_offset or not source.lineage:
        return False
    if not lineage and is_compacted and source.log_start_offset <= end_offset:
        return True  # the log begins with it, and a cleaner may have taken the first records
    if source.first_offset > end_offset:
        return False
    if not lineage:  # nothing was taken before
        return True
    if is_compacted and source.cleaned_offset > end_offset:
        return False
    return has_same_epochs(lineage, source.lineage, end_offset, is_compacted=is_compacted)


def has_same_epochs(ours: Lineage, theirs: Lineage, end_offset: int, *, is_compacted: bool) -> bool:
    """Return True if both have the same leader epochs up to ``end_offset``, from where both know them.

    Copies of a compacted topic may know different first offsets of an epoch: a cleaner took its first batches before
    they were copied. There the epoch of the last offset decides, for logs that have the same epoch at an offset have
    the same records up to it, but for what cleaners took (KIP-101; Raft's log matching).
    """
    if not theirs:
        return False
    start = max(entry.start_offset for entry in (theirs.entries[0], *ours.entries[:1]))
    if is_compacted and start < end_offset:
        return ours.epoch_for(end_offset - 1) in (theirs.epoch_for(end_offset - 1), theirs.epoch_for(end_offset))
    return start <= end_offset and theirs.entries_in(start, end_offset) == ours.entries_in(start, end_offset)


def _on_newest_branch(plan: PartitionPlan, sources: Sequence[JoinSource]) -> list[JoinSource]:
    """Return the sources without the records that a newer leader has replaced, of the tier or of another source."""
    branches = [LogBranch(each.lineage, each.end_offset) for each in sources]
    ends = ends_on_newest([*branches, LogBranch(plan.lineage, plan.end_offset)])
    return [replace(each, end_offset=end) for each, end in zip(sources, ends, strict=False)]


def _replaced(whole: Sequence[JoinSource], sources: Sequence[JoinSource]) -> Iterator[PlanFinding]:
    """Yield a finding for each source of which ``_on_newest_branch`` left something out."""
    for before, after in zip(whole, sources, strict=True):
        begin = max(after.end_offset, before.first_offset)
        if begin < before.end_offset:
            yield PlanFinding(
                PlanSeverity.WARNING,
                f"offsets {begin} to {before.end_offset - 1} of {before.directory} are left out: a newer leader"
                " replaced them, as the leader epochs of the tier or of another directory show",
                "nothing to do after an election; if that leader had lost its disk, move its directory away and plan"
                " again",
            )


def _better_than_the_tier(
    plan: PartitionPlan, joins: Sequence[PlannedJoin], sources: Sequence[JoinSource]
) -> JoinSource | None:
    """Return the standby that goes furthest and cannot be joined to the tier; None where none goes beyond the joins.

    Its log start is the leader's: what lies below, the leader had deleted, by DeleteRecords or retention. So its log
    alone lacks nothing that the leader had, and tier and old disk alone lack the newest records.
    """
    reached = _reached(plan, joins)
    candidates = [
        each
        for each in sources
        if not each.is_existing
        and reached < each.end_offset
        and each.lineage
        and (reached < each.log_start_offset or (plan.is_compacted and reached < each.cleaned_offset))
    ]
    return max(candidates, key=lambda each: (each.end_offset, -each.log_start_offset), default=None)


def _without_the_tier(plan: PartitionPlan, joins: Sequence[PlannedJoin], begins: JoinSource) -> PartitionPlan:
    reached, start = _reached(plan, joins), begins.log_start_offset
    why = f"offsets {reached} to {start - 1} were deleted at the leader and are not in the tier"
    if start <= reached:
        why = "a log cleaner has rewritten it beyond the tier, and joined to it keys that were deleted would come back"
    text = f"the log is that of a standby, which begins at {start}: {why}"
    remedy = "nothing to do: the tier keeps the records below that it has"
    return replace(plan, findings=(*plan.findings, PlanFinding(PlanSeverity.WARNING, text, remedy)))


def _reached(plan: PartitionPlan, joins: Sequence[PlannedJoin]) -> int:
    return joins[-1].end_offset if joins else plan.end_offset


def _begun_by_a_source(plan: PartitionPlan, begins: JoinSource | None) -> PartitionPlan:
    if begins is None:
        return plan
    return replace(
        plan,
        log_start_offset=begins.log_start_offset,
        end_offset=min(begins.first_offset, begins.log_start_offset),
        parts=(),
        lineage=Lineage(),
        newest_timestamp_ms=None,
        fetch_bytes=0,
        fetch_requests=0,
    )


def _whole_log(plan: PartitionPlan, sources: Sequence[JoinSource]) -> JoinSource | None:
    """Return the directory whose log is restored without the tier; None if the tier's part begins the log."""
    standbys = [each for each in sources if not each.is_existing]
    if plan.parts:
        candidates = [
            each
            for each in standbys
            if plan.is_compacted
            and plan.end_offset < min(each.end_offset, each.cleaned_offset)
            and each.log_start_offset <= plan.log_start_offset
        ]
    else:
        candidates = [each for each in standbys if each.end_offset > each.first_offset and each.lineage]
    return max(
        candidates,
        key=lambda each: (_end_behind(plan, each, sources), -each.log_start_offset, each.end_offset),
        default=None,
    )


def _end_behind(plan: PartitionPlan, begins: JoinSource, sources: Sequence[JoinSource]) -> int:
    """Return the end of the log that begins with a source, and has what can be joined to it."""
    begun = _begun_by_a_source(plan, begins)
    return _reached(begun, _joins(begun, sources))


def _joins(plan: PartitionPlan, sources: Sequence[JoinSource]) -> tuple[PlannedJoin, ...]:
    joins: list[PlannedJoin] = []
    end, lineage = plan.end_offset, plan.lineage
    while (source := next(_joinable(plan, sources, end, lineage), None)) is not None:
        joins.append(PlannedJoin(source.directory, end, source.end_offset))
        lineage = Lineage.of((*lineage.entries, *source.lineage.entries_in(end, source.end_offset).entries))
        end = source.end_offset
    return tuple(joins)


def _joinable(
    plan: PartitionPlan, sources: Sequence[JoinSource], end_offset: int, lineage: Lineage
) -> Iterator[JoinSource]:
    by_end = sorted(sources, key=lambda each: each.end_offset, reverse=True)
    return (each for each in by_end if is_joined(end_offset, lineage, each, is_compacted=plan.is_compacted))


def _above(missing: MissingRange, end_offset: int) -> MissingRange | None:
    """Return what is missing of a range once a log reaches ``end_offset``; ranges that begin below stay."""
    if missing.end_offset <= end_offset and missing.start_offset < end_offset:
        return None
    return missing._replace(start_offset=max(missing.start_offset, end_offset))
