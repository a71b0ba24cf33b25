"""LogDirPlan: the plans of all partitions of a restore, and the request for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tierd.cost import Cost
from tierd.errors import RefusedError
from tierd.metadata import RebuildProblem
from tierd.model import TopicIdPartition, TopicPartition
from tierd.remote import ObjectInfo
from tierd.restore import CataloguedTopic, ExpiredSegments, NodePlan, PartitionPlan, PlanSeverity, RestoreMode


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPlanRequest:
    """Request for the plans of a log dir.

    Attributes:
        names: partitions to restore; none means all, or those of ``topics``.
        topics: full-match regular expressions over names of topics; none means all.
        mode: use of the result.
        to_offset: exclusive end; None for the newest.
        to_time_ms: the moment up to which records are restored; None for the newest.
        by_timestamp: end each partition before its first record that is not older than ``to_time_ms``; otherwise the
            positions of the catalogue are one cut over all partitions.
        expired: treatment of segments that retention would delete at once.
        accepts_holes: restore partitions although offsets in their middle are missing.
        are_others_down: the other brokers with a replica are stopped.
        for_broker: node id of the broker that gets the result; None where it does not matter.
        retention_ms: of the topics in Kafka, as a person gave it; -1 is no limit.
        as_topic: name of the restored topic, in mode ``import``; None keeps the name.
        topic_id: of the restored topic, in mode ``import``; None takes it from the directories in the log dir.
        standbys: log dirs of standbys that are sources beside the tier.
        is_for_broker: a broker is to start on the result, so that its leader epochs are compared with the controller's.
    """

    names: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    mode: RestoreMode
    to_offset: int | None = None
    to_time_ms: int | None = None
    by_timestamp: bool = False
    expired: ExpiredSegments = ExpiredSegments.REFUSE
    accepts_holes: bool = False
    are_others_down: bool = False
    for_broker: int | None = None
    retention_ms: int | None = None
    as_topic: str | None = None
    topic_id: UUID | None = None
    standbys: tuple[Path, ...] = ()
    is_for_broker: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPlan:
    """Plans of all partitions of a restore.

    Attributes:
        plans: ascending by name.
        results: name and topic id of each restored directory, by the partition of the plan.
        is_many: partitions that are left out do not keep the others from being restored.
        is_from_bucket: the metadata was read from the bucket.
        catalogue_problems: objects of the catalogue that could not be used.
        time_rule: how a time was made into offsets, and how fine that is; empty without a time.
        unchecked_epochs: reason why leader epochs were not compared with the controller's; empty if they were, or need
            not be.
        topics: as the catalogue has them, by topic id.
        problems: what in the bucket did not become metadata.
        node: what comes back of the node beside its partitions.
        archived: objects that the plans read and that have to be thawed first.
        cost: expected cost of reading the tier.
        currency: of the cost.
    """

    plans: tuple[PartitionPlan, ...]
    results: Mapping[TopicIdPartition, TopicIdPartition]
    is_many: bool
    is_from_bucket: bool
    catalogue_problems: tuple[str, ...]
    time_rule: str
    unchecked_epochs: str
    topics: Mapping[UUID, CataloguedTopic]
    problems: tuple[RebuildProblem, ...]
    node: NodePlan
    archived: tuple[ObjectInfo, ...]
    cost: Cost
    currency: str

    @property
    def wanted(self) -> tuple[PartitionPlan, ...]:
        """Return the plans that are carried out."""
        return tuple(plan for plan in self.plans if not plan.is_refused)

    @property
    def refused(self) -> tuple[PartitionPlan, ...]:
        """Return the plans that keep the whole restore from beginning."""
        return tuple(plan for plan in self.plans if plan.is_refused and not (self.is_many and plan.is_left_out))

    def require_accepted(self) -> None:
        """Raise unless the restore may begin.

        Raises:
            RefusedError: a plan is refused, or nothing is left to restore.
        """
        if (refusal := self.node.refusal) is not None:
            raise RefusedError(refusal.text, remedy=refusal.remedy)
        for plan in self.refused:
            finding = next(each for each in plan.findings if each.severity is not PlanSeverity.WARNING)
            more = f" (and {len(self.refused) - 1} more partitions are refused)" if len(self.refused) > 1 else ""
            raise RefusedError(f"{plan.partition}: {finding.text}{more}", remedy=finding.remedy)
        if not self.wanted and self.node.metadata is None:
            raise RefusedError("no partition is left to restore", remedy="look at the plan: tierd restore … --dry-run")
