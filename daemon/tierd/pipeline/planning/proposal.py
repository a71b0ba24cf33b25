"""Candidates for a run, and what is proposed for one: with the evidence of its objects that becomes an order."""

from dataclasses import dataclass, replace
from typing import Self
from uuid import UUID

from tierd.log import AbortedTransaction
from tierd.metadata import PartitionView, effective_lineage
from tierd.model import Lineage, TopicIdPartition
from tierd.pipeline.planning.chain import Chain, readable_chain
from tierd.pipeline.planning.grouping import GroupLimits, compaction_groups
from tierd.pipeline.planning.work_order import Group, PartitionWork, WorkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPolicy:
    """The settings of one topic that planning obeys.

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
    """A partition that a run may do something to.

    Attributes:
        lineage: as the local log has it; empty where there is none.
        erased_keys: keys whose records are to go, in whichever segment they are.
        removes_unread: batches that unpack to more than tierd opens are to go with them.
        searched: ids of segments that need not be looked through for those.
    """

    view: PartitionView
    lineage: Lineage
    policy: CleaningPolicy
    erased_keys: frozenset[bytes] = frozenset()
    removes_unread: bool = False
    searched: frozenset[UUID] = frozenset()

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition."""
        return self.view.partition

    def chain(self) -> Chain:
        """Its readable segments."""
        return readable_chain(self.view, effective_lineage(self.view, self.lineage))


@dataclass(frozen=True, slots=True)
class Skipped:
    """A partition that stays as it is, and why, in words."""

    partition: TopicIdPartition
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TierEvidence:
    """Facts that only the objects of a partition hold.

    Attributes:
        producer_snapshot: of the last finished segment, as Kafka writes it.
        last_stable_offset: the tier's own, exclusive: the marker of a transaction may lie beyond its end.
        aborted: of every segment of the chain, ascending by their markers.
    """

    producer_snapshot: bytes
    last_stable_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Work on one partition that is worth doing.

    Attributes:
        ratio: dirty share, by which proposals of a kind are ordered; 0 where it is not about that.
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
        """Bytes of the logs that would be rewritten."""
        sizes = [metadata.size_bytes for metadata in self.chain.segments]
        return sum(sum(sizes[first : last + 1]) for first, last in self.groups)

    def cut(self, max_bytes: int) -> Self:
        """A proposal that rewrites no more than that, if that gets the partition anywhere; otherwise this one.

        A compaction is cut at its end, for every record that is left out would be one that nothing supersedes. It
        must still reach a dirty segment, or run after run would rewrite what is clean.
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
        """The order of this work, at place ``index``."""
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
