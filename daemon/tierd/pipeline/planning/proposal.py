"""Candidates for a run, the choice among proposals, and works, made with the evidence of the partition's objects."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from typing import Final, Self
from uuid import UUID

from tierd.log import AbortedTransaction
from tierd.metadata import PartitionView, effective_lineage
from tierd.model import Lineage, TopicIdPartition
from tierd.pipeline.planning.chain import Chain, readable_chain
from tierd.pipeline.planning.segment_grouping import GroupLimits, compaction_groups
from tierd.pipeline.planning.work_order import Group, PartitionWork, WorkKind

_FIRST: Final = (WorkKind.ERASE, WorkKind.COMPACT, WorkKind.MERGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPolicy:
    """Settings of one topic that planning obeys.

    Attributes:
        compacts: the cleanup policy has ``compact``.
        retention_ms: of records, where the policy has ``delete``; None where they never expire.
        merge_below_bytes: segments smaller than this are merged with their neighbours; None merges nothing.
        segment_bytes: size that outputs are filled up to.
    """

    compacts: bool = False
    retention_ms: int | None = None
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None
    merge_below_bytes: int | None = None
    segment_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Partition that a run may work on.

    Attributes:
        lineage: as the local log has it; empty without a local log.
        erased_keys: keys whose records are to be removed from every segment.
        removes_unread: True if batches that unpack to more than tierd opens are to be removed, too.
        searched: ids of segments that need not be searched for ``erased_keys``.
        is_copied: True if the leader copies what the tier lacks of the local log.
        local_log_start_offset: base of the first local segment. The lineage of a tiered log that tierd owns begins with
            the total log, below that.
    """

    view: PartitionView
    lineage: Lineage
    policy: CleaningPolicy
    erased_keys: frozenset[bytes] = frozenset()
    removes_unread: bool = False
    searched: frozenset[UUID] = frozenset()
    is_copied: bool = True
    local_log_start_offset: int = 0

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition of the view."""
        return self.view.partition

    def chain(self) -> Chain:
        """Return the readable segments of the partition. Slow: it reads every row."""
        earliest = self.lineage.earliest
        local_start = None if earliest is None else max(earliest.start_offset, self.local_log_start_offset)
        return readable_chain(self.view, effective_lineage(self.view, self.lineage), local_start=local_start)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Partition that stays as it is, and why, in words."""

    partition: TopicIdPartition
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TierEvidence:
    """Facts that only the objects of a partition hold.

    Attributes:
        producer_snapshot: of the last finished segment, as Kafka writes it.
        last_stable_offset: of the tier alone, exclusive: the marker of a transaction may lie beyond the tier's end.
        aborted: aborted transactions of all that readers find in the tier, ascending by their markers.
    """

    producer_snapshot: bytes
    last_stable_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Work on one partition that is worth doing.

    Attributes:
        ratio: dirty share, by which compactions are ordered; 0 for other kinds.
    """

    candidate: Candidate
    kind: WorkKind
    chain: Chain
    groups: tuple[Group, ...]
    first_dirty_offset: int
    round_end_offset: int
    ratio: float = 0.0

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition of the work."""
        return self.candidate.partition

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the logs in all groups."""
        sizes = [metadata.size_bytes for metadata in self.chain.segments]
        return sum(sum(sizes[first : last + 1]) for first, last in self.groups)

    def cut(self, max_bytes: int) -> Self:
        """Return a proposal of at most ``max_bytes`` that still makes progress; this one where there is none.

        A compaction loses segments at its end: the keys of segments that it leaves out supersede no record. A shorter
        compaction must still reach a dirty segment, or run after run would rewrite what is clean.
        """
        if self.size_bytes <= max_bytes:
            return self
        shorter = self._compaction_below(max_bytes) if self.kind is WorkKind.COMPACT else self._groups_below(max_bytes)
        return self if shorter is None else shorter

    def _compaction_below(self, max_bytes: int) -> Self | None:
        total, end = 0, self.chain.segments[0].start_offset
        for metadata in self.chain.segments:
            total += metadata.size_bytes
            if total > max_bytes:
                break
            end = metadata.end_offset + 1
        if end <= self.first_dirty_offset:
            return None
        chain = self.chain.below(end)
        groups = compaction_groups(chain, GroupLimits(segment_bytes=self.candidate.policy.segment_bytes))
        return replace(self, chain=chain, groups=groups, round_end_offset=end)

    def _groups_below(self, max_bytes: int) -> Self | None:
        taken: tuple[Group, ...] = ()
        for group in self.groups:
            longer = replace(self, groups=(*taken, group))
            if longer.size_bytes > max_bytes:
                break
            taken = longer.groups
        return replace(self, groups=taken) if taken else None

    def with_evidence(self, index: int, evidence: TierEvidence, *, now_ms: int) -> PartitionWork:
        """Return the work for an order, at place ``index``."""
        policy, expire_before_ms = self.candidate.policy, None
        if self.kind is WorkKind.COMPACT and policy.retention_ms is not None and now_ms > policy.retention_ms:
            expire_before_ms = now_ms - policy.retention_ms
        return PartitionWork(
            index=index,
            partition=self.partition,
            kind=self.kind,
            inputs=self.chain.segments,
            groups=self.groups,
            first_dirty_offset=self.first_dirty_offset,
            round_end_offset=self.round_end_offset,
            delete_retention_ms=policy.delete_retention_ms,
            producer_snapshot=evidence.producer_snapshot,
            expire_before_ms=expire_before_ms,
            erased_keys=self.candidate.erased_keys,
            removes_unread=self.candidate.removes_unread,
            is_compacted_topic=policy.compacts,
            aborted=tuple(entry for entry in evidence.aborted if entry.first_offset < self.round_end_offset),
        )


def by_urgency(proposals: Iterable[Proposal], *, behind: Container[TopicIdPartition] = ()) -> list[Proposal]:
    """Sort proposals: erasures, then compactions, the dirtiest first, then merges, the most segments first (CLM-01).

    Within each kind the partitions ``behind`` come last.
    """

    def urgency(proposal: Proposal) -> tuple[int, bool, float, int, TopicIdPartition]:
        is_behind = proposal.partition in behind
        return _FIRST.index(proposal.kind), is_behind, -proposal.ratio, -_segments(proposal), proposal.partition

    return sorted(proposals, key=urgency)


class RunBudget:
    """Budget of the bytes that one run may rewrite; one proposal after the other takes its share."""

    def __init__(self, max_bytes: int | None) -> None:
        """Begin with ``max_bytes``; None for no limit."""
        self._left = max_bytes
        self._is_untouched = True

    def take(self, proposal: Proposal) -> Proposal | None:
        """Return the part of a proposal that fits, None when the proposal has to wait for another run.

        The first proposal is cut to the budget, and exceeds it only where a smaller part would make no progress:
        otherwise a partition larger than the limit would never be rewritten. Later proposals are taken whole.
        """
        if self._left is None:
            return proposal
        taken = proposal.cut(self._left) if self._is_untouched else proposal
        if taken.size_bytes > self._left and not self._is_untouched:
            return None
        self._left, self._is_untouched = max(0, self._left - taken.size_bytes), False
        return taken


def _segments(proposal: Proposal) -> int:
    return sum(group.last - group.first + 1 for group in proposal.groups)
