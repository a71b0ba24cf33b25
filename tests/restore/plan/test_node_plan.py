"""Plan of what comes back of a node: identity of the log dir, cluster metadata, what that says of partitions."""

from dataclasses import replace
from uuid import UUID

import pytest

from tests.restore.catalogue.metadata_snapshots import NAME, cluster_snapshot
from tierd.model import EpochEntry, Lineage, TopicIdPartition
from tierd.restore.catalogue.catalogue_objects import CataloguedNode
from tierd.restore.catalogue.cluster_snapshot import parse_cluster_snapshot
from tierd.restore.plan.node_plan import CataloguedSnapshot, NodeFacts, NodePlan, plan_node
from tierd.restore.plan.partition_plan import PlanSeverity

ORDERS = TopicIdPartition(UUID(int=7), "orders", 0)
IDENTITY = "#\n#Mon Nov 23\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAg\nnode.id=1\nversion=1\n"


def newest(
    *,
    controllers: tuple[int, ...] = (1,),
    brokers: tuple[int, ...] = (1,),
    replicas: tuple[int, ...] = (1,),
    next_producer_id: int = 1000,
) -> CataloguedSnapshot:
    content = cluster_snapshot(
        {ORDERS: replicas},
        controllers=controllers,
        brokers=brokers,
        leader_epoch=4,
        next_producer_id=next_producer_id,
    )
    return CataloguedSnapshot(
        content=content, snapshot=parse_cluster_snapshot(NAME, content), node_id=1, observed_ms=1_000
    )


NODE = CataloguedNode(
    node_id=1,
    meta_properties={"/data": IDENTITY},
    metadata_snapshot=b"",
    metadata_snapshot_name=NAME,
    observed_ms=1_000,
    metadata_log_dir="/data",
)
FACTS = NodeFacts(
    node_id=1,
    log_dir="/data",
    node=NODE,
    newest=newest(),
    identity=None,
    has_metadata=False,
    is_whole=True,
    survivors=0,
    are_others_down=False,
)


def severities(plan: NodePlan) -> list[PlanSeverity]:
    return [each.severity for each in plan.findings]


def test_only_controller_gets_identity_and_cluster_metadata_back() -> None:
    plan = plan_node(FACTS)
    assert (plan.meta_properties, plan.metadata, plan.findings) == (IDENTITY, FACTS.newest, ())


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, newest=newest(controllers=(3000,))),
        replace(FACTS, has_metadata=True),
        replace(FACTS, node=replace(NODE, metadata_log_dir="/other")),
    ],
    ids=["separate controllers", "metadata is there", "other log dir"],
)
def test_cluster_metadata_that_was_not_lost_with_the_disk_does_not_come_back(facts: NodeFacts) -> None:
    assert plan_node(facts) == NodePlan(meta_properties=IDENTITY)


def test_node_that_the_catalogue_does_not_have_gets_nothing() -> None:
    assert plan_node(replace(FACTS, node=None, newest=None)) == NodePlan()


def test_cluster_metadata_is_left_to_the_other_controllers_unless_they_are_down() -> None:
    facts = replace(FACTS, newest=newest(controllers=(1, 2, 3), brokers=(1, 2, 3)))
    left = plan_node(facts)
    assert (left.meta_properties, left.metadata, severities(left)) == (IDENTITY, None, [PlanSeverity.WARNING])
    assert "fetches it from the controllers 2, 3" in left.findings[0].text
    down = plan_node(replace(facts, are_others_down=True))
    assert (down.metadata, down.refusal) == (facts.newest, None)
    assert "must be the cluster metadata of the controllers 2, 3 too" in down.findings[0].text


def test_cluster_metadata_without_controllers_comes_back_only_where_the_others_are_down() -> None:
    facts = replace(FACTS, newest=newest(controllers=()))
    assert plan_node(facts).metadata is None
    assert plan_node(replace(facts, are_others_down=True)).metadata is not None


def test_brokers_that_may_have_later_cluster_metadata_must_be_down() -> None:
    facts = replace(FACTS, newest=newest(brokers=(1, 2, 3)))
    refusal = plan_node(facts).refusal
    assert refusal is not None
    assert "the brokers 2, 3 may have cluster metadata that goes further" in refusal.text
    assert plan_node(replace(facts, are_others_down=True)).refusal is None


def test_log_dir_that_was_formatted_anew_is_refused() -> None:
    other = IDENTITY.replace("AAAg", "AAAw")
    refusal = plan_node(replace(FACTS, identity=other)).refusal
    assert refusal is not None
    assert "was formatted anew" in refusal.text
    same = plan_node(replace(FACTS, identity=IDENTITY.replace("Nov 23", "Nov 24")))
    assert (same.meta_properties, same.metadata, same.refusal) == (None, FACTS.newest, None)


def test_partitions_that_survive_in_other_log_dirs_are_named() -> None:
    plan = plan_node(replace(FACTS, survivors=3))
    assert (plan.metadata, severities(plan)) == (FACTS.newest, [PlanSeverity.WARNING])
    assert "other log dirs have 3 partitions" in plan.findings[0].text


def test_missing_snapshot_is_named() -> None:
    plan = plan_node(replace(FACTS, newest=None))
    assert (plan.meta_properties, severities(plan)) == (IDENTITY, [PlanSeverity.WARNING])


def test_identity_comes_back_with_the_whole_log_dir_only() -> None:
    plan = plan_node(replace(FACTS, is_whole=False))
    assert (plan.meta_properties, plan.metadata, severities(plan)) == (None, None, [PlanSeverity.WARNING])


def severity(
    plan: NodePlan, partition: TopicIdPartition = ORDERS, *, node_id: int = 1, epoch: int = 4, producer_id: int = -1
) -> PlanSeverity | None:
    findings = plan.partition_findings(
        partition, node_id=node_id, lineage=Lineage((EpochEntry(epoch, 0),)), highest_producer_id=producer_id
    )
    return findings[0].severity if findings else None


def test_partition_that_the_cluster_metadata_does_not_know_is_left_out() -> None:
    plan = plan_node(FACTS)
    assert severity(plan) is None
    assert severity(plan, replace(ORDERS, partition=1)) is PlanSeverity.LEFT_OUT
    assert severity(plan, replace(ORDERS, topic_id=UUID(int=8))) is PlanSeverity.LEFT_OUT
    assert severity(plan, node_id=2) is PlanSeverity.LEFT_OUT


def test_leader_epoch_above_that_of_the_cluster_metadata_is_refused() -> None:
    assert severity(plan_node(FACTS), epoch=5) is PlanSeverity.REFUSED


def test_producer_id_that_would_be_issued_again_is_refused() -> None:
    plan = plan_node(FACTS)
    assert severity(plan, producer_id=999) is None
    assert severity(plan, producer_id=1000) is PlanSeverity.REFUSED


def test_topic_that_the_tier_does_not_have_is_named() -> None:
    plan = plan_node(FACTS)
    assert plan.naming_empty_topics([ORDERS], node_id=1) == plan
    (finding,) = plan.naming_empty_topics([], node_id=1).findings
    assert finding.severity is PlanSeverity.WARNING
    assert "partitions of orders, which come back empty" in finding.text
    assert plan.naming_empty_topics([], node_id=2) == plan
    assert NodePlan().naming_empty_topics([], node_id=1) == NodePlan()


def test_plan_without_cluster_metadata_says_nothing_of_partitions() -> None:
    assert severity(NodePlan(), epoch=99, producer_id=99) is None
