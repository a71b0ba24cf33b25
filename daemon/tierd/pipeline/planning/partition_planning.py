"""Plan for one partition in this run, from its metadata alone."""

from typing import Final

from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.planning.chain import Chain
from tierd.pipeline.planning.cleanable import Cleanable, cleanable_of
from tierd.pipeline.planning.proposal import Candidate, Proposal, Skipped
from tierd.pipeline.planning.segment_grouping import GroupLimits, compaction_groups, merge_groups, single_groups
from tierd.pipeline.planning.work_order import Group, WorkKind

_OF_RETENTION: Final = 10  # a segment with less than a tenth of its life left is not merged; a merge adds no more


def plan_partition(candidate: Candidate, *, now_ms: int, last_stable_offset: int | None = None) -> Proposal | Skipped:
    """Choose the work on a partition: compact it if it is dirty enough, or else erase keys, or else merge segments.

    A compaction erases keys, too. So a segment that cannot be read does not keep the partition from being compacted.

    Args:
        candidate: partition with its metadata loaded.
        now_ms: wall clock.
        last_stable_offset: of the tier; None while it is unknown: then the result is an upper bound.
    """
    chain = candidate.chain()
    if not chain.segments:
        return Skipped(candidate.partition, "no segment in the tier is readable")
    stable = chain.end_offset if last_stable_offset is None else last_stable_offset
    plans: list[Proposal | Skipped] = []
    if candidate.policy.compacts:
        plans.append(_compaction(candidate, chain, stable, now_ms=now_ms))
    if candidate.erased_keys:
        plans.append(_erasure(candidate, chain, stable))
    plans.append(_merge(candidate, chain, stable, now_ms=now_ms))
    proposals = (plan for plan in plans if isinstance(plan, Proposal))
    return next(proposals, plans[0])


def _compaction(candidate: Candidate, tier: Chain, stable: int, *, now_ms: int) -> Proposal | Skipped:
    chain = tier.covered()
    if not chain.segments:
        return Skipped(candidate.partition, _beyond(tier))
    cleanable = cleanable_of(
        chain,
        compacted_to=candidate.view.compacted_to,
        log_end_offset=tier.end_offset,
        last_stable_offset=stable,
        min_compaction_lag_ms=candidate.policy.min_compaction_lag_ms,
        max_compaction_lag_ms=candidate.policy.max_compaction_lag_ms,
        now_ms=now_ms,
    )
    if not cleanable.is_due(candidate.policy.min_cleanable_dirty_ratio):
        return Skipped(candidate.partition, _why_not(candidate, cleanable, chain, stable))
    inputs = chain.below(cleanable.first_uncleanable_offset)
    return Proposal(
        candidate=candidate,
        kind=WorkKind.COMPACT,
        chain=inputs,
        groups=compaction_groups(inputs, GroupLimits(segment_bytes=candidate.policy.segment_bytes)),
        first_dirty_offset=cleanable.first_dirty_offset,
        round_end_offset=cleanable.first_uncleanable_offset,
        ratio=cleanable.ratio,
    )


def _why_not(candidate: Candidate, cleanable: Cleanable, chain: Chain, stable: int) -> str:
    if cleanable.cleanable_bytes:
        least = candidate.policy.min_cleanable_dirty_ratio
        return f"a dirty ratio of {cleanable.ratio:.2f} is not above {least:.2f}"
    if chain.covered_to is not None and cleanable.first_dirty_offset >= chain.end_offset:
        return _beyond(chain)
    if cleanable.first_dirty_offset >= chain.end_offset:
        return f"nothing is new since it was compacted to offset {cleanable.first_dirty_offset}"
    if stable < chain.end_offset and cleanable.first_uncleanable_offset <= stable:
        return f"a transaction that began at offset {stable} is open at the end of the tier"
    return "everything new is empty, or younger than min_compaction_lag"


def _beyond(chain: Chain) -> str:
    if chain.missing is not None and chain.covered_to == chain.missing.start:
        return (
            f"the tier lacks offsets {chain.missing.start} to {chain.missing.end}, which the local log has: nothing "
            "behind them is compacted until they are copied again"
        )
    return (
        f"from offset {chain.covered_to} on readers take a part of a segment that goes on with a branch that was given "
        "up: nothing behind that is compacted"
    )


def _erasure(candidate: Candidate, chain: Chain, stable: int) -> Proposal | Skipped:
    inputs = chain.below(stable)
    groups = single_groups(inputs, but=candidate.searched)
    if not groups:
        why = "every segment was looked through" if stable == chain.end_offset else f"a transaction is open at {stable}"
        return Skipped(candidate.partition, f"nothing is to be erased: {why}")
    members = tuple(inputs.segments[place] for place, _ in groups)
    return _outside_compaction(candidate, WorkKind.ERASE, Chain(members), _renumbered(groups))


def _merge(candidate: Candidate, chain: Chain, stable: int, *, now_ms: int) -> Proposal | Skipped:
    policy, below = candidate.policy, candidate.policy.merge_below_bytes
    if below is None:
        return Skipped(candidate.partition, "it is not compacted, and nothing is to be merged")
    log_start = candidate.view.log_start_offset or 0
    margin_ms = None if policy.retention_ms is None else policy.retention_ms // _OF_RETENTION

    def may_merge(metadata: RemoteLogSegmentMetadata) -> bool:
        if metadata.size_bytes >= below or metadata.start_offset < log_start:
            return False
        if policy.retention_ms is None or margin_ms is None:
            return True
        return metadata.max_timestamp_ms + policy.retention_ms > now_ms + margin_ms

    inputs = chain.below(stable).broken_at(candidate.view.compacted_to)
    limits = GroupLimits(segment_bytes=policy.segment_bytes, age_spread_ms=margin_ms)
    groups = merge_groups(inputs, limits, may_merge=may_merge)
    if not groups:
        return Skipped(candidate.partition, f"no neighbours are smaller than {below} bytes and may be merged")
    members = tuple(inputs.segments[place] for first, last in groups for place in range(first, last + 1))
    return _outside_compaction(candidate, WorkKind.MERGE, Chain(members), _renumbered(groups))


def _renumbered(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Return the groups by the places of their members among these members alone."""
    found: list[Group] = []
    for first, last in groups:
        begins = found[-1].last + 1 if found else 0
        found.append(Group(begins, begins + last - first))
    return tuple(found)


def _outside_compaction(candidate: Candidate, kind: WorkKind, inputs: Chain, groups: tuple[Group, ...]) -> Proposal:
    return Proposal(
        candidate=candidate,
        kind=kind,
        chain=inputs,
        groups=groups,
        first_dirty_offset=inputs.segments[0].start_offset,
        round_end_offset=inputs.end_offset,
    )
