"""MqttLeadership and AnnouncedLeadership, over announcements that need no broker."""

import asyncio

import pytest

from tests.control.mqtt.daemons import new_control
from tests.control.mqtt.messages import ORDERS, leader
from tierd.control import Leadership, Role, StaticLeadership
from tierd.control.leadership import LeadershipSource
from tierd.control.mqtt.announced_leadership import AnnouncedLeadership
from tierd.control.mqtt.control_messages import encode
from tierd.control.mqtt.control_topics import LeaderTopic
from tierd.control.mqtt.mqtt_control import MqttControl
from tierd.control.mqtt.mqtt_leadership import MqttLeadership
from tierd.errors import ControlPlaneUnreachableError
from tierd.model import TopicIdPartition

PARTITION = TopicIdPartition(ORDERS, "orders", 0)
TOPIC = LeaderTopic(ORDERS, 0)


@pytest.fixture
def control() -> MqttControl:
    return new_control("lkc-1", 1, "127.0.0.1:1")


def _hear(control: MqttControl, leader_id: int, epoch: int) -> None:
    control.state.receive(control.state.topics.name(TOPIC), encode(leader(leader_id, epoch)))


async def _events(source: LeadershipSource) -> list[Leadership]:
    """Return the roles that the source has to tell now."""
    found: list[Leadership] = []

    async def collect() -> None:
        async for event in source.changes():
            found.append(event)  # noqa: PERF401 - the task is cancelled in the middle

    task = asyncio.create_task(collect())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    return found


async def test_announced_leader_is_led_and_any_other_replica_is_followed(control: MqttControl) -> None:
    leadership = MqttLeadership(control, node_id=1)
    leadership.observe(PARTITION, 4)
    _hear(control, 1, 5)
    assert await _events(leadership) == [Leadership(PARTITION, 5, Role.LEADER)]
    assert leadership.leads(PARTITION)
    _hear(control, 2, 6)
    assert await _events(leadership) == [Leadership(PARTITION, 6, Role.FOLLOWER)]


async def test_replica_without_an_announcement_has_no_role(control: MqttControl) -> None:
    leadership = MqttLeadership(control, node_id=1)
    leadership.observe(PARTITION, 4)
    assert await _events(leadership) == []
    assert leadership.statistics().unknown == 1


async def test_announcement_older_than_the_local_log_gives_no_role(control: MqttControl) -> None:
    leadership = MqttLeadership(control, node_id=1)
    leadership.observe(PARTITION, 7)
    _hear(control, 1, 5)
    assert await _events(leadership) == []
    assert leadership.statistics().outdated == 1


async def test_announcement_before_the_replica_is_seen_counts(control: MqttControl) -> None:
    leadership = MqttLeadership(control, node_id=1)
    _hear(control, 1, 5)
    leadership.observe(PARTITION, None)
    assert await _events(leadership) == [Leadership(PARTITION, 5, Role.LEADER)]


async def test_repeated_announcement_is_no_event(control: MqttControl) -> None:
    leadership = MqttLeadership(control, node_id=1)
    leadership.observe(PARTITION, 4)
    _hear(control, 1, 5)
    await _events(leadership)
    _hear(control, 1, 5)
    leadership.observe(PARTITION, 5)
    assert await _events(leadership) == []


async def test_cleared_announcement_and_deleted_topic_take_no_role_away(control: MqttControl) -> None:
    leadership = MqttLeadership(control, node_id=1)
    leadership.observe(PARTITION, 4)
    _hear(control, 1, 5)
    await _events(leadership)
    control.state.receive(control.state.topics.name(TOPIC), b"")
    control.state.announce_topic(ORDERS, name="orders", deleted=True)
    assert await _events(leadership) == []
    assert leadership.statistics().leaders == 1


async def test_source_says_that_it_has_not_heard_yet(control: MqttControl) -> None:
    leadership = MqttLeadership(control, node_id=1)
    assert "not heard yet" in leadership.not_ready()
    assert isinstance(leadership.never_heard, ControlPlaneUnreachableError)


async def test_partition_that_is_led_is_announced_before_its_role_begins(control: MqttControl) -> None:
    source = AnnouncedLeadership(StaticLeadership(), control, node_id=1)
    source.observe(PARTITION, 3)
    assert await _events(source) == [Leadership(PARTITION, 3, Role.LEADER)]
    announced = control.state.view.leader_of(ORDERS, 0)
    assert announced is not None
    assert (announced.leader, announced.leader_epoch) == (1, 3)
    assert control.state.view.topic_name(ORDERS) == "orders"


async def test_partition_that_is_followed_or_gone_is_not_announced(control: MqttControl) -> None:
    source = AnnouncedLeadership(StaticLeadership([]), control, node_id=1)
    source.observe(PARTITION, 3)
    assert [event.role for event in await _events(source)] == [Role.FOLLOWER]
    assert control.state.announced() == []
    led = AnnouncedLeadership(StaticLeadership(), control, node_id=1)
    led.observe(PARTITION, 3)
    await _events(led)
    led.forget(PARTITION)
    assert control.state.announced() == []
