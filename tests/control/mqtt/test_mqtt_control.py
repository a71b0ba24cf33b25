"""MqttControl against a real Mosquitto."""

import asyncio
from uuid import UUID, uuid4

import pytest
import uvloop
from pydantic import JsonValue

from tests.control.mqtt.daemons import led, new_cluster, new_control, running
from tests.fakes.eventually import eventually
from tests.services.mqtt import MqttService
from tierd.control.mqtt.control_messages import MAX_PAYLOAD_BYTES, PeerRequest
from tierd.control.mqtt.control_topics import LeaderTopic, NodeStateTopic
from tierd.control.mqtt.mqtt_control import MqttControl
from tierd.control.mqtt.publish_queue import OutgoingMessage
from tierd.errors import ControlPlaneError, ControlPlaneUnreachableError, IdentityTakenError, TierError

pytestmark = pytest.mark.service("mqtt")


def _is_online(control: MqttControl, node_id: int) -> bool | None:
    state = control.state.view.node(node_id)
    return None if state is None else state.online


async def test_daemons_of_a_cluster_learn_of_each_other(mqtt_service: MqttService) -> None:
    cluster = new_cluster()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))
    async with running(one), running(two):
        await eventually(lambda: bool(_is_online(one, 2) and _is_online(two, 1)), what="both to be online")


async def test_daemon_that_stops_in_order_is_announced_as_offline(mqtt_service: MqttService) -> None:
    cluster = new_cluster()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))
    async with running(one):
        async with running(two):
            await eventually(lambda: _is_online(one, 2) is True, what="node 2 to be online")
        await eventually(lambda: _is_online(one, 2) is False, what="node 2 to be offline")


async def test_leader_that_was_announced_before_is_known_to_a_daemon_that_starts_later(
    mqtt_service: MqttService,
) -> None:
    cluster, topic_id = new_cluster(), uuid4()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))
    one.state.announce_leader(led(topic_id, 1, 5))
    async with running(one):
        await eventually(lambda: one.statistics().queue.waiting == 0, what="the announcement to be sent")
        await asyncio.sleep(0)
        async with running(two):
            await eventually(lambda: two.state.view.leader_of(topic_id, 0) is not None, what="the leader")
            found = two.state.view.leader_of(topic_id, 0)
            assert found is not None
            assert (found.leader, found.leader_epoch) == (1, 5)


@pytest.mark.spec("push-replication 95")
async def test_daemon_publishes_its_state_again_after_the_broker_lost_everything(mqtt_service: MqttService) -> None:
    cluster, topic_id = new_cluster(), uuid4()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))
    one.state.announce_leader(led(topic_id, 1, 5))
    async with running(one) as running_one:
        mqtt_service.restart(is_state_lost=True)
        await eventually(lambda: one.statistics().reconnects == 1, what="a reconnect")
        assert not running_one.done()
        async with running(two):
            await eventually(lambda: two.state.view.leader_of(topic_id, 0) is not None, what="the leader")
            await eventually(lambda: _is_online(two, 1) is True, what="node 1 to be online")


@pytest.mark.spec("push-replication 95")
async def test_announcements_during_an_outage_are_sent_after_it(mqtt_service: MqttService) -> None:
    cluster, topic_id = new_cluster(), uuid4()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))
    async with running(one), running(two):
        mqtt_service.services.kill("mqtt")
        try:
            await eventually(lambda: not one.is_connected, what="the loss of the connection")
            assert one.state.announce_leader(led(topic_id, 1, 7))
            one.wake()
        finally:
            mqtt_service.services.start("mqtt")
        await eventually(lambda: two.state.view.leader_of(topic_id, 0) is not None, what="the leader")


async def test_daemon_starts_without_a_broker_and_says_why_it_is_not_connected() -> None:
    control = new_control(new_cluster(), 1, "127.0.0.1:1")
    async with running(control, is_awaited=False) as task:
        await eventually(lambda: control.statistics().problem != "", what="the problem")
        assert "127.0.0.1:1" in control.statistics().problem
        assert not task.done()


def test_broker_that_ends_in_order_is_noticed_at_once_on_the_loop_of_the_daemon(mqtt_service: MqttService) -> None:
    cluster = new_cluster()

    async def story() -> None:
        one, two = (new_control(cluster, node_id, mqtt_service.address, keepalive_s=60.0) for node_id in (1, 2))
        async with running(one), running(two):
            mqtt_service.services.stop("mqtt")
            try:
                await eventually(lambda: not (one.is_connected or two.is_connected), what="the loss", deadline_s=10)
            finally:
                mqtt_service.services.start("mqtt")
            await eventually(lambda: one.is_connected and two.is_connected, what="a connection")

    uvloop.run(story())


async def test_frozen_broker_is_noticed_and_the_daemon_comes_back(mqtt_service: MqttService) -> None:
    control = new_control(new_cluster(), 1, mqtt_service.address, connect_timeout_s=1.0)
    async with running(control):
        mqtt_service.services.freeze("mqtt")
        try:
            await eventually(lambda: not control.is_connected, what="the loss of the connection")
        finally:
            mqtt_service.services.thaw("mqtt")
        await eventually(lambda: control.is_connected, what="a connection")


@pytest.mark.spec("push-replication 100")
async def test_daemon_whose_client_id_connects_elsewhere_ends_with_an_error(mqtt_service: MqttService) -> None:
    cluster = new_cluster()
    first, second = (new_control(cluster, 1, mqtt_service.address) for _ in range(2))
    async with running(first) as task, running(second) as taker:
        await asyncio.wait({task}, timeout=10)
        assert isinstance(task.exception(), IdentityTakenError)
        assert not taker.done()


@pytest.mark.spec("push-replication 96")
@pytest.mark.spec("push-replication F31")
async def test_stale_retained_leader_is_replaced_by_the_holder_of_the_higher_epoch(mqtt_service: MqttService) -> None:
    cluster, topic_id = new_cluster(), uuid4()
    old, new = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))
    late = new_control(cluster, 3, mqtt_service.address)
    new.state.announce_leader(led(topic_id, 2, 5))
    old.state.announce_leader(led(topic_id, 1, 4))
    async with running(new):
        await eventually(lambda: new.statistics().queue.waiting == 0, what="epoch 5 to be sent")
        async with running(old):
            await eventually(lambda: old.state.announced() == [], what="the old leader to withdraw")
            assert old.state.view.leader_of(topic_id, 0) == new.state.view.leader_of(topic_id, 0)
        async with running(late):
            await eventually(lambda: _leader_of(late, topic_id) == 2, what="the leader of epoch 5")


def _leader_of(control: MqttControl, topic_id: UUID) -> int | None:
    announced = control.state.view.leader_of(topic_id, 0)
    return None if announced is None else announced.leader


async def test_request_is_answered_by_the_peer(mqtt_service: MqttService) -> None:
    cluster = new_cluster()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))

    async def pause(request: PeerRequest) -> JsonValue:
        return {"paused": list(request.partitions), "by": request.node}

    async with running(one), running(two, {"pause": pause}):
        answer = await one.ask(2, "pause", partitions=["orders-0"])
    assert answer == {"paused": ["orders-0"], "by": 1}


async def test_request_with_a_verb_that_does_not_exist_is_refused_with_the_verbs_that_do(
    mqtt_service: MqttService,
) -> None:
    cluster = new_cluster()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))

    async def status(_: PeerRequest) -> JsonValue:
        return {}

    async with running(one), running(two, {"status": status, "delete-partition": status}):
        with pytest.raises(TierError, match="node 2: no request 'delete-partition'") as refused:
            await one.ask(2, "delete-partition", partitions=["orders-0"])
    assert refused.value.remedy == "answered: status"


async def test_request_to_a_node_that_is_not_there_ends_within_its_deadline(mqtt_service: MqttService) -> None:
    control = new_control(new_cluster(), 1, mqtt_service.address, request_timeout_s=0.2)
    async with running(control):
        with pytest.raises(ControlPlaneUnreachableError, match="node 9 did not answer status"):
            await control.ask(9, "status")


async def test_request_while_the_broker_is_lost_fails_at_once() -> None:
    control = new_control(new_cluster(), 1, "127.0.0.1:1")
    with pytest.raises(ControlPlaneUnreachableError):
        await control.ask(2, "status")


async def test_failure_of_a_request_is_told_to_the_peer(mqtt_service: MqttService) -> None:
    cluster = new_cluster()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))

    async def sync(_: PeerRequest) -> JsonValue:
        raise TierError("orders-9: no such partition here", remedy="see tierd status")

    async with running(one), running(two, {"sync": sync}):
        with pytest.raises(TierError, match="node 2: orders-9: no such partition here") as refused:
            await one.ask(2, "sync", partitions=["orders-9"])
    assert refused.value.remedy == "see tierd status"


async def test_answer_that_is_too_large_is_an_error_and_not_a_lost_connection(mqtt_service: MqttService) -> None:
    cluster = new_cluster()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))

    async def describe(_: PeerRequest) -> JsonValue:
        return "x" * MAX_PAYLOAD_BYTES

    async with running(one), running(two, {"describe": describe}):
        with pytest.raises(TierError, match="does not fit into one message"):
            await one.ask(2, "describe")
        assert two.is_connected


@pytest.mark.spec("push-replication 99")
async def test_request_above_4_kib_is_refused_before_it_is_sent(mqtt_service: MqttService) -> None:
    control = new_control(new_cluster(), 1, mqtt_service.address)
    async with running(control):
        with pytest.raises(ControlPlaneError, match="larger than 4 KiB"):
            await control.ask(2, "pause", partitions=["a" * 250] * 20)
        assert control.statistics().publish_dropped == 1
        assert control.is_connected


async def test_flood_of_requests_is_bounded_and_each_gets_an_answer(mqtt_service: MqttService) -> None:
    cluster = new_cluster()
    one, two = (new_control(cluster, node_id, mqtt_service.address) for node_id in (1, 2))
    at_once, most = 0, 0
    release = asyncio.Event()

    async def status(_: PeerRequest) -> JsonValue:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await release.wait()
        at_once -= 1
        return "ready"

    async with running(one), running(two, {"status": status}):
        asked = [asyncio.create_task(one.ask(2, "status")) for _ in range(30)]
        await eventually(lambda: two.statistics().refused_requests == 22, what="22 refusals")
        release.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert most == 8
    assert answers.count("ready") == 8
    assert sum("answers other requests" in str(answer) for answer in answers) == 22


async def test_damaged_and_foreign_messages_are_counted_and_change_nothing(mqtt_service: MqttService) -> None:
    cluster, topic_id = new_cluster(), uuid4()
    control = new_control(cluster, 1, mqtt_service.address)
    stranger = new_control(cluster, 2, mqtt_service.address)
    leader, state = (control.state.topics.name(each) for each in (LeaderTopic(topic_id, 0), NodeStateTopic(5)))
    async with running(control), running(stranger):
        for topic, payload in ((leader, b"\xff"), (leader, b'{"v": 1}'), (state, b"[" * 3000), (leader, b"{}" * 3000)):
            stranger.state.queue._direct.append(_message(topic, payload))
        stranger.wake()
        await eventually(lambda: control.statistics().damaged == 4, what="four damaged messages")
        assert control.state.view.leader_of(topic_id, 0) is None
        assert control.is_connected


async def test_message_above_the_packet_limit_is_kept_away_and_the_connection_stays(mqtt_service: MqttService) -> None:
    cluster, topic_id = new_cluster(), uuid4()
    control = new_control(cluster, 1, mqtt_service.address)
    stranger = new_control(cluster, 2, mqtt_service.address)
    topic = control.state.topics.name(LeaderTopic(topic_id, 0))
    async with running(control), running(stranger):
        stranger.state.queue._direct.append(_message(topic, b"x" * 60_000))
        stranger.state.announce_leader(led(topic_id, 2, 1, partition=1))
        stranger.wake()
        await eventually(lambda: control.state.view.leader_of(topic_id, 1) is not None, what="the next message")
        assert control.statistics().damaged == 0
        assert control.statistics().reconnects == 0


def _message(topic: str, payload: bytes) -> OutgoingMessage:
    return OutgoingMessage(topic=topic, payload=payload)
