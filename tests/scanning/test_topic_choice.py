"""Incarnations of topics, and the partitions of a read."""

from uuid import UUID

import pytest

from tierd.errors import UnknownPartitionError
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.scanning.topic_choice import chosen_partitions, incarnation, tiered_topics

OLD, NEW, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)


def partition(topic_id: UUID, number: int, topic: str = "orders") -> TopicIdPartition:
    return TopicIdPartition(topic_id, topic, number)


def test_topics_join_the_partitions_of_tier_and_host() -> None:
    known = [partition(OLD, 1), partition(OLD, 0), partition(OTHER, 0, "audit")]
    audit, orders = tiered_topics(known, [partition(OLD, 2), partition(OLD, 1)])
    assert (audit.name, audit.partitions, audit.is_local) == ("audit", (0,), False)
    assert (orders.name, orders.partitions, orders.is_local) == ("orders", (0, 1, 2), True)
    assert orders.topic_id == uuid_to_text(OLD)


def test_name_of_a_topic_that_was_made_anew_means_the_one_on_this_host() -> None:
    topics = tiered_topics([partition(OLD, 0), partition(NEW, 0)], [partition(NEW, 0)])
    copied = {uuid_to_text(OLD): (True, 9), uuid_to_text(NEW): (False, -1)}
    assert incarnation("orders", topics, copied).topic_id == uuid_to_text(NEW)


def test_name_of_a_topic_that_is_not_on_this_host_means_the_one_copied_last() -> None:
    topics = tiered_topics([partition(NEW, 0), partition(OLD, 0)], [])
    copied = {uuid_to_text(OLD): (True, 5), uuid_to_text(NEW): (True, 9)}
    assert incarnation("orders", topics, copied).topic_id == uuid_to_text(NEW)


def test_unknown_topic_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownPartitionError, match="a topic order; did you mean orders"):
        incarnation("order", tiered_topics([partition(OLD, 0)], []), {})


def test_partitions_are_read_in_order_and_once() -> None:
    (topic,) = tiered_topics([partition(OLD, n) for n in range(4)], [])
    assert chosen_partitions(topic, [3, 1, 3]) == (1, 3)
    assert chosen_partitions(topic, None) == (0, 1, 2, 3)
    with pytest.raises(UnknownPartitionError, match="knows orders-7") as refused:
        chosen_partitions(topic, [1, 7])
    assert refused.value.remedy == "the partitions of topic orders are 0, 1, 2, 3"
