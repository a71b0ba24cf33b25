"""ClusterLeaders: leaders by the brokers' metadata."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.app.endpoint.cluster_leaders import ClusterLeaders
from tierd.control import ClusterTopics
from tierd.control.cluster_metadata import PartitionLeader, TopicKnowledge, TopicLeaders
from tierd.errors import KafkaUnreachableError
from tierd.model import TopicIdPartition

ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
LED = TopicLeaders(ORDERS, TopicKnowledge.KNOWN, (PartitionLeader(0, 1, 5), PartitionLeader(1, -1, 6)))
GONE = TopicLeaders(PAYMENTS, TopicKnowledge.UNKNOWN)


class Brokers:
    """Answers of the brokers; None while none answers."""

    def __init__(self) -> None:
        self.answers: list[TopicLeaders] | None = [LED, GONE]
        self.asked: list[Collection[UUID]] = []
        self.is_closed = False

    async def leaders(self, topic_ids: Collection[UUID]) -> list[TopicLeaders]:
        self.asked.append(topic_ids)
        if self.answers is None:
            raise KafkaUnreachableError("no broker answers", remedy="start one")
        return self.answers

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def asking(brokers: Brokers, clock: ManualClock, **names: UUID) -> ClusterLeaders:
    wanted = {topic_id: name for name, topic_id in names.items()}
    return ClusterLeaders(cast("ClusterTopics", brokers), lambda: wanted, refresh_s=5, clock=clock)


async def test_leaders_of_known_topics_are_told_and_a_partition_may_have_none(brokers: Brokers) -> None:
    leaders = asking(brokers, ManualClock(), orders=ORDERS, payments=PAYMENTS)
    assert await leaders.refresh()
    told = {each.partition.partition: (each.broker_id, each.leader_epoch) for each in leaders.leaders.values()}
    assert told == {0: (1, 5), 1: (None, 6)}
    assert TopicIdPartition(ORDERS, "orders", 1) in leaders.leaders
    assert not await leaders.refresh()


async def test_brokers_are_not_asked_while_nothing_is_served(brokers: Brokers) -> None:
    assert not await asking(brokers, ManualClock()).refresh()
    assert not brokers.asked


async def test_last_leaders_count_while_no_broker_answers_and_the_log_says_it_once(brokers: Brokers) -> None:
    leaders = asking(brokers, ManualClock(), orders=ORDERS)
    await leaders.refresh()
    brokers.answers = None
    with capture_logs() as logs:
        assert not await leaders.refresh()
        assert not await leaders.refresh()
    assert len(leaders.leaders) == 2
    assert [entry["event"] for entry in logs] == ["endpoint_leaders_unknown"]


async def test_watch_tells_of_changes_and_closes_the_connection_at_its_end(brokers: Brokers) -> None:
    clock, changes = ManualClock(), list[int]()
    leaders = asking(brokers, clock, orders=ORDERS)
    watch = asyncio.create_task(leaders.watch(lambda: changes.append(1)))
    await eventually(lambda: clock.sleeping == 1, what="the first answer")
    brokers.answers = [replace(LED, partitions=(PartitionLeader(0, 2, 7),))]
    for _ in range(2):
        clock.advance(5)
        await eventually(lambda: clock.sleeping == 1, what="the next answer")
    watch.cancel()
    await asyncio.wait({watch})
    assert len(changes) == 2
    assert brokers.is_closed
