"""KafkaLeadership and BrokerTopicConfigs over real brokers: three nodes whose leaders move, hang, die and come back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import UUID, uuid4

import pytest

from tests.control.connecting import plaintext
from tests.control.test_kafka import Told, listening_to
from tests.fakes.eventually import eventually
from tests.fakes.kafka_broker import CLUSTER_ID
from tests.services.faulty_path import FaultyPath
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tierd.clock import SystemClock
from tierd.control import BrokerTopicConfigs, KafkaLeadership, Leadership, Role
from tierd.model import TopicIdPartition

pytestmark = pytest.mark.service("kafka")

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def trio(shared_kafka: MakeCluster) -> KafkaCluster:
    """Start three nodes of the newest Kafka."""
    return shared_kafka(nodes=3, version="4.3.1")


@pytest.fixture
def topic(trio: KafkaCluster) -> str:
    """Create a fresh topic; its partitions are led by nodes 1, 2 and 3."""
    name = f"orders-{uuid4().hex[:8]}"
    trio.create_topic(name, replicas=[[1, 2, 3], [2, 1, 3], [3, 1, 2]])
    return name


def source(*servers: str, node_id: int = 1, request_timeout_s: float = 1.0) -> KafkaLeadership:
    return KafkaLeadership(
        plaintext(*servers, refresh_s=0.2, request_timeout_s=request_timeout_s),
        cluster_id=CLUSTER_ID,
        node_id=node_id,
        clock=SystemClock(),
        deletion_grace_s=1.0,
    )


@pytest.fixture
async def told(trio: KafkaCluster) -> AsyncIterator[Told]:
    """Collect the events of the cluster for node 1."""
    async with listening_to(source(*trio.bootstrap.split(","))) as collected:
        yield collected


def partitions(trio: KafkaCluster, topic: str, count: int = 3) -> list[TopicIdPartition]:
    topic_id = trio.topic_id(topic)
    return [TopicIdPartition(topic_id, topic, number) for number in range(count)]


async def role(told: Told, partition: TopicIdPartition, expected: Role) -> Leadership:
    """Return the latest event of ``partition``, once its role is ``expected``."""

    def last() -> Leadership | None:
        return next((event for event in reversed(told.events) if event.partition == partition), None)

    await eventually(
        lambda: (event := last()) is not None and event.role is expected,
        what=f"{partition} to be {expected.value}",
        deadline_s=DEADLINE_S,
    )
    event = last()
    assert event is not None, "just seen"
    return event


async def test_leaders_move_when_their_broker_dies_and_return_by_election(
    trio: KafkaCluster, topic: str, told: Told
) -> None:
    first, second, third = partitions(trio, topic)
    for partition in (first, second, third):
        told.source.observe(partition, 0)
    assert await role(told, first, Role.LEADER) == Leadership(first, 0, Role.LEADER)
    followed = await role(told, second, Role.FOLLOWER)

    trio.kill(2)
    promoted = await role(told, second, Role.LEADER)
    assert promoted.leader_epoch > followed.leader_epoch
    trio.start(2)
    await eventually(lambda: trio.in_sync(topic, 1) == {1, 2, 3}, what="every replica in sync", deadline_s=DEADLINE_S)
    await asyncio.to_thread(trio.elect_preferred, topic, 1)
    demoted = await role(told, second, Role.FOLLOWER)
    assert demoted.leader_epoch > promoted.leader_epoch
    epochs = [event.leader_epoch for event in told.events if event.partition == second]
    assert epochs == sorted(set(epochs))


async def test_recreated_topic_is_another_topic_and_the_old_one_is_deleted(
    trio: KafkaCluster, topic: str, told: Told
) -> None:
    old = partitions(trio, topic)[0]
    told.source.observe(old, 0)
    await role(told, old, Role.LEADER)

    await asyncio.to_thread(trio.delete_topic, topic)
    told.source.forget(old)
    await eventually(lambda: trio.partition_dir(topic, 0) is None, what="the directories to go", deadline_s=DEADLINE_S)
    await asyncio.to_thread(trio.create_topic, topic, replicas=[[1, 2, 3]])
    new = partitions(trio, topic)[0]
    assert new.topic_id != old.topic_id
    told.source.observe(new, None)

    assert await role(told, new, Role.LEADER) == Leadership(new, 0, Role.LEADER)
    await role(told, old, Role.DELETED)


async def test_partitions_that_are_added_get_their_roles(trio: KafkaCluster, topic: str, told: Told) -> None:
    told.source.observe(partitions(trio, topic)[0], 0)
    await role(told, partitions(trio, topic)[0], Role.LEADER)

    await asyncio.to_thread(trio.add_partitions, topic, 6)
    added = partitions(trio, topic, 6)[3:]
    for partition in added:
        told.source.observe(partition, None)

    await eventually(
        lambda: {event.partition for event in told.events} >= set(added), what="three roles", deadline_s=DEADLINE_S
    )
    leaders = {p: await asyncio.to_thread(trio.leader, topic, p.partition) for p in added}
    for event in told.events[-3:]:
        assert (event.role is Role.LEADER) == (leaders[event.partition] == 1)


async def test_a_partition_that_is_reassigned_away_is_followed(trio: KafkaCluster, topic: str, told: Told) -> None:
    first = partitions(trio, topic)[0]
    told.source.observe(first, 0)
    await role(told, first, Role.LEADER)

    await asyncio.to_thread(trio.reassign, topic, 0, [2, 3])

    await role(told, first, Role.FOLLOWER)


async def test_frozen_broker_is_replaced_by_another_at_the_deadline(trio: KafkaCluster, topic: str) -> None:
    first = partitions(trio, topic)[0]
    async with listening_to(source(trio.address(3), request_timeout_s=0.5)) as told:
        told.source.observe(first, 0)
        await role(told, first, Role.LEADER)
        trio.freeze(3)
        try:
            await eventually(
                lambda: told.source.statistics().broker in {trio.address(1), trio.address(2)},
                what="another broker",
                deadline_s=DEADLINE_S,
            )
            assert told.source.statistics().errors > 0
            assert [event.role for event in told.events] == [Role.LEADER]
        finally:
            trio.thaw(3)


@pytest.mark.parametrize(
    ("kind", "attributes"), [("reset_peer", {"timeout": 0}), ("timeout", {"timeout": 0}), ("limit_data", {"bytes": 60})]
)
async def test_reset_silent_and_cut_connections_are_replaced_and_change_no_role(
    trio: KafkaCluster,
    topic: str,
    faulty_path_to: Callable[[str], FaultyPath],
    kind: str,
    attributes: dict[str, int],
) -> None:
    first = partitions(trio, topic)[0]
    path = faulty_path_to(trio.address(2))
    async with listening_to(source(path.address, request_timeout_s=0.5)) as told:
        told.source.observe(first, 0)
        await role(told, first, Role.LEADER)
        assert told.source.statistics().broker == path.address

        await asyncio.to_thread(path.add, kind, "downstream", **attributes)

        await eventually(
            lambda: told.source.statistics().errors > 0 and told.source.statistics().last_error == "",
            what="a failure, and a round after it",
            deadline_s=DEADLINE_S,
        )
        assert told.source.statistics().broker in trio.bootstrap.split(",")
        assert [event.role for event in told.events] == [Role.LEADER]


async def test_slow_connection_is_not_closed(
    trio: KafkaCluster, topic: str, faulty_path_to: Callable[[str], FaultyPath]
) -> None:
    path = faulty_path_to(trio.address(2))
    path.add("latency", latency=100)
    async with listening_to(source(path.address)) as told:
        told.source.observe(partitions(trio, topic)[0], 0)
        await told.count(1)
        assert told.source.statistics().broker == path.address
        assert told.source.statistics().errors == 0


async def test_brokers_of_another_cluster_are_refused(trio: KafkaCluster) -> None:
    wrong = KafkaLeadership(
        plaintext(trio.address(1)), cluster_id="AAAAAAAAAAAAAAAAAAAAAA", node_id=1, clock=SystemClock()
    )
    async with listening_to(wrong) as told:
        told.source.observe(TopicIdPartition(UUID(int=1), "orders", 0), 0)
        await eventually(lambda: wrong.statistics().errors > 0, what="a refusal", deadline_s=DEADLINE_S)
        assert f"belongs to cluster {CLUSTER_ID}" in wrong.not_ready()


async def test_settings_of_topics_are_those_of_the_broker_after_each_change(trio: KafkaCluster, topic: str) -> None:
    cache = BrokerTopicConfigs(plaintext(trio.address(1)), cluster_id=CLUSTER_ID, clock=SystemClock())
    cache.get(topic)
    cache.get("no-such-topic")
    assert await cache.refresh() == {topic}
    assert cache.get(topic) == {
        "cleanup.policy": "delete",
        "delete.retention.ms": "86400000",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "remote.log.copy.disable": "false",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": "1073741824",
    }
    await asyncio.to_thread(trio.alter_topic, topic, {"retention.ms": "5000", "cleanup.policy": "compact,delete"})
    async with asyncio.timeout(DEADLINE_S):
        while topic not in await cache.refresh():  # until the change has reached the broker that is asked
            pass
    settings = cache.get(topic)
    assert settings is not None
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("5000", "compact,delete")
    assert "no-such-topic" in cache.problem
