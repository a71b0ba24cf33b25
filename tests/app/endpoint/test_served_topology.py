"""Topics as an endpoint shows them: incarnations, leaders and epochs."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.app.endpoint.served_topology import KnownPartition, ServedTopics, TopologyFacts, ambiguous_topics, spread
from tierd.model import TopicIdPartition
from tierd.serve import ServedTopic

OLD, NEW = UUID(int=1), UUID(int=2)


def orders(number: int = 0, topic_id: UUID = NEW) -> TopicIdPartition:
    return TopicIdPartition(topic_id, "orders", number)


def known(partition: TopicIdPartition, *, epoch: int = 0, broker: int | None = None) -> KnownPartition:
    return KnownPartition(partition, epoch, broker)


def build(
    facts: TopologyFacts, *, topics: ServedTopics | None = None, node_ids: Sequence[int] = (1, 2)
) -> Mapping[str, ServedTopic]:
    return (topics or ServedTopics()).build(
        facts,
        node_ids=node_ids,
        endpoint_of=lambda broker: broker if broker in node_ids else None,
        settings_of=lambda topic: {"retention.ms": "7"},
    )


def led_by(facts: TopologyFacts, *, node_ids: Sequence[int] = (1, 2)) -> tuple[int, int]:
    (partition,) = build(facts, node_ids=node_ids)["orders"].partitions
    return partition.leader_id, partition.leader_epoch


class TestIncarnations:
    def test_partitions_of_log_dirs_and_store_are_one_topic_in_order(self) -> None:
        topics = build(TopologyFacts(replicas=[known(orders(2))], stored=[known(orders(0)), known(orders(2))]))
        assert [each.partition for each in topics["orders"].partitions] == [orders(0), orders(2)]
        assert (topics["orders"].topic_id, topics["orders"].settings) == (NEW, {"retention.ms": "7"})

    def test_incarnation_of_the_log_dirs_hides_that_of_the_store(self) -> None:
        facts = TopologyFacts(replicas=[known(orders(0, NEW))], stored=[known(orders(0, OLD)), known(orders(1, OLD))])
        topic = build(facts)["orders"]
        assert (topic.topic_id, len(topic.partitions)) == (NEW, 1)

    def test_incarnation_of_the_brokers_hides_every_other(self) -> None:
        facts = TopologyFacts(
            replicas=[known(orders(0, OLD))],
            stored=[known(orders(0, NEW))],
            leaders={orders(0, NEW): known(orders(0, NEW), broker=2)},
        )
        assert build(facts)["orders"].topic_id == NEW

    @pytest.mark.parametrize("newest", [OLD, NEW])
    def test_of_several_incarnations_in_the_store_the_newest_is_served(self, newest: UUID) -> None:
        stored = [known(orders(0, OLD)), known(orders(0, NEW))]
        assert ambiguous_topics(stored) == {"orders": {OLD, NEW}}
        topic = build(TopologyFacts(stored=stored, newest={"orders": newest}))["orders"]
        assert topic.topic_id == newest

    def test_partition_that_only_the_brokers_know_is_not_served(self) -> None:
        assert build(TopologyFacts(leaders={orders(): known(orders(), broker=1)})) == {}


class TestLeaders:
    def test_endpoint_beside_the_leader_leads(self) -> None:
        assert led_by(TopologyFacts(replicas=[known(orders(), epoch=3, broker=1)])) == (1, 3)
        assert led_by(TopologyFacts(stored=[known(orders(), epoch=4, broker=2)])) == (2, 4)

    def test_leader_of_the_higher_epoch_counts(self) -> None:
        facts = TopologyFacts(
            replicas=[known(orders(), epoch=3, broker=1)],
            stored=[known(orders(), epoch=2, broker=1)],
            leaders={orders(): known(orders(), epoch=5, broker=2)},
        )
        assert led_by(facts) == (2, 5)

    def test_leader_without_an_endpoint_is_replaced_by_one_of_the_live_endpoints(self) -> None:
        facts = TopologyFacts(stored=[known(orders(), epoch=4, broker=9)])
        assert led_by(facts) == (spread(orders(), (1, 2)), 4)

    def test_partition_of_a_lost_endpoint_moves_to_a_live_one_in_the_same_epoch(self) -> None:
        facts = TopologyFacts(stored=[known(orders(), epoch=4, broker=2)])
        assert led_by(facts, node_ids=(1, 3)) == (spread(orders(), (1, 3)), 4)

    @given(node_ids=st.sets(st.integers(0, 20), min_size=2), number=st.integers(0, 100))
    def test_loss_of_an_endpoint_moves_only_its_partitions(self, node_ids: set[int], number: int) -> None:
        before = spread(orders(number), node_ids)
        for lost in node_ids - {before}:
            assert spread(orders(number), node_ids - {lost}) == before


class TestEpochs:
    def test_epoch_that_was_shown_never_goes_back(self) -> None:
        topics = ServedTopics()
        build(TopologyFacts(replicas=[known(orders(), epoch=7, broker=1)]), topics=topics)
        later = build(TopologyFacts(stored=[known(orders(), epoch=5, broker=2)]), topics=topics)
        assert later["orders"].partitions[0].leader_epoch == 7

    def test_topics_are_the_same_object_until_something_changes(self) -> None:
        topics, facts = ServedTopics(), TopologyFacts(stored=[known(orders(), epoch=5, broker=2)])
        first = build(facts, topics=topics)
        assert build(facts, topics=topics) is first
        assert build(TopologyFacts(stored=[known(orders(), epoch=6, broker=2)]), topics=topics) is not first
