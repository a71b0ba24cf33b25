"""KafkaLeadership over scripted brokers; real ones are in test_real_kafka."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from uuid import UUID

from kio.schema.errors import ErrorCode

from tests.control.connecting import plaintext
from tests.fakes.eventually import eventually
from tests.fakes.kafka_broker import CLUSTER_ID, ScriptedBroker
from tierd.clock import SystemClock
from tierd.control import KafkaLeadership, Leadership, Role
from tierd.errors import KafkaError
from tierd.model import TopicIdPartition

TOPIC = UUID(int=1)
ORDERS = TopicIdPartition(TOPIC, "orders", 0)


class Told:
    """Events of a source, collected as the one consumer of ``changes``."""

    def __init__(self, source: KafkaLeadership) -> None:
        self.source = source
        self.events: list[Leadership] = []

    async def collect(self) -> None:
        async for event in self.source.changes():
            self.events.append(event)

    async def count(self, count: int) -> list[Leadership]:
        await eventually(lambda: len(self.events) >= count, what=f"{count} roles")
        return self.events


def leadership(
    *servers: str,
    refresh_s: float = 0.02,
    deletion_grace_s: float = 0.1,
    on_outcome: Callable[[KafkaError | None], None] = lambda _: None,
) -> KafkaLeadership:
    return KafkaLeadership(
        plaintext(*servers, refresh_s=refresh_s, request_timeout_s=1.0),
        cluster_id=CLUSTER_ID,
        node_id=1,
        clock=SystemClock(),
        random=lambda: 0.0,
        deletion_grace_s=deletion_grace_s,
        on_outcome=on_outcome,
    )


@contextlib.asynccontextmanager
async def listening_to(source: KafkaLeadership) -> AsyncIterator[Told]:
    told = Told(source)
    consumer = asyncio.create_task(told.collect())
    try:
        yield told
        assert not consumer.done(), "the stream never ends"
    finally:
        consumer.cancel()
        await asyncio.wait([consumer])


async def test_role_is_reported_at_its_begin_and_at_each_change() -> None:
    broker = ScriptedBroker(topics={TOPIC: {0: (1, 5)}})
    async with broker.listening() as address, listening_to(leadership(address)) as told:
        told.source.observe(ORDERS, 5)
        assert await told.count(1) == [Leadership(ORDERS, 5, Role.LEADER)]
        broker.topics[TOPIC] = {0: (2, 6)}
        broker.topics[TOPIC] = {0: (2, 6)}
        assert (await told.count(2))[1] == Leadership(ORDERS, 6, Role.FOLLOWER)


async def test_new_replica_is_requested_at_once_without_the_other_topics() -> None:
    other = UUID(int=2)
    broker = ScriptedBroker(topics={TOPIC: {0: (1, 5)}, other: {0: (2, 0)}})
    async with broker.listening() as address, listening_to(leadership(address, refresh_s=3600)) as told:
        told.source.observe(ORDERS, 5)
        await told.count(1)
        told.source.observe(TopicIdPartition(other, "other", 0), None)
        await told.count(2)
    assert [asked for key, asked in broker.requests if key == 3 and asked] == [1, 1]


async def test_roles_stay_during_an_outage_of_the_brokers_and_the_problem_is_reported() -> None:
    broker = ScriptedBroker(topics={TOPIC: {0: (1, 5)}})
    async with listening_to(leadership("127.0.0.1:1")) as told:
        assert "have not been asked for yet" in told.source.not_ready()
        await eventually(lambda: told.source.statistics().errors > 1, what="failed rounds")
        assert "cannot connect" in told.source.not_ready()
    async with broker.listening() as address, listening_to(leadership(address)) as told:
        told.source.observe(ORDERS, 5)
        await told.count(1)
        assert told.source.not_ready() == ""
        broker.is_silent = True
        await eventually(lambda: told.source.statistics().errors > 0, what="a failed round")
        statistics = told.source.statistics()
        assert statistics.last_refresh_ms is not None
        assert statistics.last_error
        assert statistics.remedy
        assert statistics.roles.leaders == 1
        broker.is_silent = False
        broker.topics[TOPIC] = {0: (2, 6)}
        assert (await told.count(2))[1].role is Role.FOLLOWER
        assert told.source.statistics().last_error == ""


async def test_readiness_survives_one_failed_round_and_ends_after_several() -> None:
    broker = ScriptedBroker()
    async with broker.listening() as address:
        source = leadership(address)
        await source.refresh_once()
        broker.is_silent = True
        await source.refresh_once()
        assert source.statistics().last_error
        assert source.not_ready() == ""
        await source.refresh_once()
        await source.refresh_once()
        assert "leaders cannot be asked for" in source.not_ready()
        source.close()


async def test_outcome_of_each_round_of_requests_is_reported() -> None:
    broker, told = ScriptedBroker(), list[KafkaError | None]()
    async with broker.listening() as address:
        source = leadership(address, on_outcome=told.append)
        await source.refresh_once()
        broker.is_silent = True
        await source.refresh_once()
        broker.is_silent = False
        await source.refresh_once()
        source.close()
    assert [failure is None for failure in told] == [True, False, True]


async def test_answers_of_a_cluster_with_another_id_are_refused() -> None:
    broker = ScriptedBroker(cluster_id="another", topics={TOPIC: {0: (1, 5)}})
    async with broker.listening() as address, listening_to(leadership(address)) as told:
        told.source.observe(ORDERS, 5)
        await eventually(lambda: told.source.statistics().errors > 2, what="failed rounds")
        assert "belongs to cluster another" in told.source.not_ready()
        assert told.events == []


async def test_lost_connection_is_reopened_before_the_next_round() -> None:
    broker = ScriptedBroker(topics={TOPIC: {0: (1, 5)}})
    async with broker.listening() as address, listening_to(leadership(address, refresh_s=3600)) as told:
        told.source.observe(ORDERS, 5)
        await told.count(1)
        broker.drop_connections()
        broker.topics[TOPIC] = {0: (2, 6)}
        told.source.observe(ORDERS, 6)
        assert (await told.count(2))[1].role is Role.FOLLOWER
        assert broker.connections >= 2


async def test_deletion_of_a_topic_is_reported_once_most_brokers_do_not_know_it() -> None:
    one, two = ScriptedBroker(node_id=1), ScriptedBroker(node_id=2)
    async with one.listening() as address, two.listening():
        for broker in (one, two):
            broker.brokers = {1: one.address, 2: two.address}
            broker.topics[TOPIC] = {0: (1, 5)}
        async with listening_to(leadership(address)) as told:
            told.source.observe(ORDERS, 5)
            await told.count(1)
            one.topics.clear()
            told.source.forget(ORDERS)
            await eventually(lambda: two.connections > 0, what="a question to the other broker")
            assert len(told.events) == 1, "the other broker still knows the topic"
            two.topics.clear()
            assert (await told.count(2))[1] == Leadership(ORDERS, 5, Role.DELETED)


async def test_topic_that_may_not_be_described_is_not_taken_for_deleted() -> None:
    broker = ScriptedBroker(topics={TOPIC: ErrorCode.topic_authorization_failed})
    async with broker.listening() as address, listening_to(leadership(address, deletion_grace_s=0.0)) as told:
        told.source.observe(ORDERS, 5)
        await eventually(lambda: len(broker.requests) > 20, what="some rounds")
        assert told.events == []
        assert "grant Describe" in told.source.statistics().problems["orders-0"]


async def test_many_partitions_are_requested_in_requests_of_bounded_size() -> None:
    topics = {UUID(int=t): {p: (1 + p % 3, 4) for p in range(10)} for t in range(1, 1001)}
    broker = ScriptedBroker(topics=dict(topics))
    async with broker.listening() as address:
        source = leadership(address, refresh_s=3600)
        for topic_id, partitions in topics.items():
            for partition in partitions:
                source.observe(TopicIdPartition(topic_id, f"topic-{topic_id.int}", partition), 4)
        async with listening_to(source) as told:
            events = await told.count(10_000)
            assert sum(event.role is Role.LEADER for event in events) == 4_000
            assert source.statistics().roles.followers == 6_000
    assert max(asked for _, asked in broker.requests) <= 250


async def test_a_cancelled_consumer_leaves_no_connection() -> None:
    broker = ScriptedBroker()
    async with broker.listening() as address:
        source = leadership(address)
        async with listening_to(source):
            await eventually(lambda: source.statistics().broker != "", what="a connection")
        assert source.statistics().broker == ""
