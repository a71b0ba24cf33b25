"""NodePlan: what of a node comes back beside its partitions: identity of the log dir, cluster metadata (trap 5).

The cluster metadata comes back where it was lost with the disk, and nowhere else::

    node is no controller                        no: the controllers have it
    log dir had none, or still has it            no
    other controllers, not said to be down       no: the node fetches it from them
    the only controller; others are down         yes, from the newest snapshot of any node
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from tierd.model import Lineage, TopicIdPartition
from tierd.restore.catalogue.catalogue_objects import CataloguedNode
from tierd.restore.catalogue.cluster_snapshot import ClusterSnapshot
from tierd.restore.plan.partition_plan import PlanFinding, PlanSeverity

_SHOWN: Final = 5
_STRAY: Final = (
    "start the broker on what comes back, create the topic there, and restore the partition with --mode import"
)
_PARTS_FIRST: Final = PlanFinding(
    PlanSeverity.WARNING,
    "the log dir gets neither meta.properties nor the cluster metadata, and no broker starts on it yet",
    "tierd restore log-dir with --for-broker and without --topic puts them back, and what is still missing",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedSnapshot:
    """Snapshot of the cluster metadata in the catalogue.

    Attributes:
        content: of the file.
        snapshot: what it says.
        node_id: of the node in whose log dir it was.
        observed_ms: when the node's files were seen.
    """

    content: bytes
    snapshot: ClusterSnapshot
    node_id: int
    observed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts about a node whose log dir is restored.

    Attributes:
        node_id: of the node.
        log_dir: path of the log dir.
        node: of the catalogue; None where it has none.
        newest: the newest snapshot of any node in the catalogue; None without one.
        identity: content of ``meta.properties`` in the log dir; None without one.
        has_metadata: the log dir has a ``__cluster_metadata-0``.
        is_whole: the restore takes all partitions of the node.
        survivors: number of partitions in other log dirs of the node.
        are_others_down: the other nodes are stopped.
    """

    node_id: int
    log_dir: str
    node: CataloguedNode | None
    newest: CataloguedSnapshot | None
    identity: str | None
    has_metadata: bool
    is_whole: bool
    survivors: int
    are_others_down: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Plan of what comes back of a node.

    Attributes:
        meta_properties: content of that file, where the log dir lacks it and the catalogue has it; None otherwise.
        metadata: snapshot that becomes the ``__cluster_metadata-0`` of the log dir; None where none does.
        findings: warnings and refusals.
    """

    meta_properties: str | None = None
    metadata: CataloguedSnapshot | None = None
    findings: tuple[PlanFinding, ...] = ()

    @property
    def refusal(self) -> PlanFinding | None:
        """Return the finding that keeps the whole restore from beginning; None without one."""
        return next((each for each in self.findings if each.severity is not PlanSeverity.WARNING), None)

    def partition_findings(
        self, partition: TopicIdPartition, *, node_id: int, lineage: Lineage, highest_producer_id: int
    ) -> tuple[PlanFinding, ...]:
        """Return what the restored cluster metadata says against a partition on the node.

        Args:
            partition: of the tier.
            node_id: of the node.
            lineage: leader epochs of its records.
            highest_producer_id: in the newest producer snapshot of the tier; -1 without one.
        """
        if self.metadata is None:
            return ()
        snapshot = self.metadata.snapshot
        known = snapshot.partitions.get((partition.topic_id, partition.partition))
        if known is None or snapshot.topics.get(partition.topic_id) != partition.topic:
            text = f"the cluster metadata that comes back, {snapshot.name}, does not know the partition yet"
            return (PlanFinding(PlanSeverity.LEFT_OUT, text, _STRAY),)
        if node_id not in known.replicas:
            text = f"in the cluster metadata that comes back, {snapshot.name}, broker {node_id} has no replica of it"
            return (PlanFinding(PlanSeverity.LEFT_OUT, text, "restore it for a broker that has one"),)
        if lineage.latest is not None and lineage.latest.epoch > known.leader_epoch:
            text = (
                f"its records are of leader epoch {lineage.latest.epoch}, and the cluster metadata that comes back, "
                f"{snapshot.name}, is at epoch {known.leader_epoch}"
            )
            remedy = "make a new cluster, and restore into new topics with --mode import"
            return (PlanFinding(PlanSeverity.REFUSED, text, remedy),)
        problem = producer_id_problem(snapshot, highest_producer_id)
        return () if problem is None else (problem,)

    def naming_empty_topics(self, planned: Collection[TopicIdPartition], *, node_id: int) -> Self:
        """Return the plan with a warning of topics that come back without records, because the tier has none of them.

        Args:
            planned: partitions of the tier.
            node_id: of the node.
        """
        if self.metadata is None:
            return self
        snapshot = self.metadata.snapshot
        there = {(each.topic_id, each.partition) for each in planned}
        names = {
            snapshot.topics.get(key[0], "")
            for key, partition in snapshot.partitions.items()
            if node_id in partition.replicas and key not in there
        }
        empty = sorted(name for name in names if not name.startswith("__"))
        if not empty:
            return self
        more = f" and {len(empty) - _SHOWN} more" if len(empty) > _SHOWN else ""
        finding = PlanFinding(
            PlanSeverity.WARNING,
            f"the tier lacks partitions of {', '.join(empty[:_SHOWN])}{more}, which come back empty",
            "tierd restore groups lowers the positions of consumer groups that lie behind the end",
        )
        return replace(self, findings=(*self.findings, finding))


def producer_id_problem(snapshot: ClusterSnapshot, highest_producer_id: int) -> PlanFinding | None:
    """Return a refusal if brokers would issue a producer id again that restored records have (trap 1).

    A broker takes a batch of a new producer with such an id for a batch that it has, and drops it.
    """
    if highest_producer_id < snapshot.next_producer_id:
        return None
    text = (
        f"it has producer id {highest_producer_id}, and the cluster metadata that comes back, {snapshot.name}, issues "
        f"ids from {snapshot.next_producer_id} on: records of a later producer with an id of before would be lost"
    )
    remedy = "make a new cluster, and restore into new topics with --mode import, which leaves producer ids out"
    return PlanFinding(PlanSeverity.REFUSED, text, remedy)


def plan_node(facts: NodeFacts) -> NodePlan:
    """Decide what comes back of a node."""
    node = facts.node
    identity = None if node is None else node.meta_properties.get(facts.log_dir)
    missing = identity if facts.identity is None else None
    if node is None or identity is None or facts.has_metadata or not had_metadata(node, facts.log_dir):
        return NodePlan(meta_properties=missing)
    if facts.newest is None:
        return NodePlan(meta_properties=missing, findings=(_no_snapshot(facts),))
    snapshot = facts.newest.snapshot
    if snapshot.controllers and facts.node_id not in snapshot.controllers:
        return NodePlan(meta_properties=missing)
    if snapshot.controllers != {facts.node_id} and not facts.are_others_down:
        return NodePlan(meta_properties=missing, findings=(_left_to_quorum(facts, snapshot),))
    if not facts.is_whole:
        return NodePlan(findings=(_PARTS_FIRST,))
    findings = [*_identity_findings(facts, identity), *_survivor_findings(facts), *_other_nodes(facts, snapshot)]
    return NodePlan(meta_properties=missing, metadata=facts.newest, findings=tuple(findings))


def had_metadata(node: CataloguedNode, log_dir: str) -> bool:
    """Return True if the cluster metadata was in the log dir, or may have been: a node writes snapshots at times."""
    return node.metadata_log_dir == log_dir or (not node.metadata_log_dir and len(node.meta_properties) == 1)


def _no_snapshot(facts: NodeFacts) -> PlanFinding:
    text = (
        f"the catalogue has no snapshot of the cluster metadata, which node {facts.node_id} may have had in the log dir"
    )
    remedy = (
        "if the node was the only controller, its topics are lost with the disk: make a new cluster, and restore into "
        "new topics with --mode import"
    )
    return PlanFinding(PlanSeverity.WARNING, text, remedy)


def _left_to_quorum(facts: NodeFacts, snapshot: ClusterSnapshot) -> PlanFinding:
    others = sorted(snapshot.controllers - {facts.node_id})
    if others:
        text = f"the cluster metadata does not come back: the node fetches it from the {_nodes('controller', others)}"
    else:
        text = "the cluster metadata does not come back: the catalogue does not say which nodes are controllers"
    remedy = "if no other controller has it any more, stop them all, and give --others-down"
    return PlanFinding(PlanSeverity.WARNING, text, remedy)


def _identity_findings(facts: NodeFacts, identity: str) -> Iterable[PlanFinding]:
    if facts.identity is not None and _properties(facts.identity) != _properties(identity):
        text = f"{facts.log_dir} was formatted anew: its meta.properties is not the one that the controller knows"
        remedy = "move meta.properties, bootstrap.checkpoint and __cluster_metadata-0 out of the log dir"
        yield PlanFinding(PlanSeverity.REFUSED, text, remedy)


def _survivor_findings(facts: NodeFacts) -> Iterable[PlanFinding]:
    if facts.survivors:
        text = (
            f"other log dirs have {facts.survivors} partitions, whose topics, leader epochs and producer ids are not "
            "compared with the cluster metadata that comes back"
        )
        remedy = "if much has happened since the snapshot, move them away, and restore them from the tier too"
        yield PlanFinding(PlanSeverity.WARNING, text, remedy)


def _other_nodes(facts: NodeFacts, snapshot: ClusterSnapshot) -> Iterable[PlanFinding]:
    controllers = sorted(snapshot.controllers - {facts.node_id})
    if controllers:
        text = f"{snapshot.name} must be the cluster metadata of the {_nodes('controller', controllers)} too"
        remedy = "restore them in the same way before any of them starts; an empty majority would make an empty cluster"
        yield PlanFinding(PlanSeverity.WARNING, text, remedy)
    brokers = sorted(snapshot.brokers - snapshot.controllers - {facts.node_id})
    if brokers:
        severity = PlanSeverity.WARNING if facts.are_others_down else PlanSeverity.REFUSED
        text = (
            f"the {_nodes('broker', brokers)} may have cluster metadata that goes further than {snapshot.name}, and "
            "then cannot follow the controller"
        )
        remedy = "stop them, move their __cluster_metadata-0 out of their log dirs, and give --others-down"
        yield PlanFinding(severity, text, remedy)


def _nodes(kind: str, numbers: list[int]) -> str:
    return f"{kind}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _properties(text: str) -> list[str]:
    """Return the lines of a file of properties without its comments, among them the date."""
    return sorted(line for line in text.splitlines() if line and not line.startswith("#"))
