"""ControlState: what follows from a message, without a broker."""

import pytest

from tests.control.mqtt.daemons import led, new_cluster
from tests.control.mqtt.messages import CLUSTER, ORDERS, leader, presence
from tests.fakes.manual_clock import ManualClock
from tierd.control.mqtt.control_messages import CORRELATION_BYTES, NodeState, PeerRequest, decode, encode
from tierd.control.mqtt.control_state import ControlIdentity, ControlState, ReceivedRequest
from tierd.control.mqtt.control_topics import LeaderTopic, NodeStateTopic, ReplyTopic, RequestTopic
from tierd.control.mqtt.publish_queue import OutgoingMessage

LEADER = LeaderTopic(ORDERS, 0)
CORRELATION = bytes(CORRELATION_BYTES)


@pytest.fixture
def state() -> ControlState:
    identity = ControlIdentity(
        cluster_id=CLUSTER, node_id=1, process_epoch=20, instance="mine", started_at_ms=20, version="0"
    )
    made = ControlState(identity, clock=ManualClock())
    made.begin_connection()
    made.on_connected()
    return made


def _sent(state: ControlState, now_s: float) -> list[OutgoingMessage]:
    sent = []
    while isinstance(found := state.queue.next(now_s), OutgoingMessage):
        sent.append(found)
    return sent


def _own(state: ControlState, message: OutgoingMessage) -> NodeState:
    found = decode(state.topics.parse(message.topic), message.payload, cluster_id=CLUSTER)
    assert isinstance(found, NodeState)
    return found


def test_will_of_a_connection_counts_after_its_messages_and_before_those_of_the_next(state: ControlState) -> None:
    first = _own(state, _sent(state, 0)[0])
    will = _own(state, state.begin_connection())
    state.on_connected()
    second = _own(state, _sent(state, 10)[0])
    will_of_first = _own(state, ControlState(state.identity, clock=ManualClock()).begin_connection())
    assert first.order < will_of_first.order < second.order < will.order
    assert not will.online


def test_late_will_of_this_process_is_overwritten(state: ControlState) -> None:
    _sent(state, 0)
    topic = state.topics.name(NodeStateTopic(1))
    state.receive(topic, encode(presence(1, 20, 3, online=False, instance="mine")))
    (again,) = _sent(state, 10)
    assert _own(state, again).online


@pytest.mark.spec("push-replication 100")
def test_presence_of_a_later_process_with_this_identity_means_that_it_is_taken(state: ControlState) -> None:
    state.receive(state.topics.name(NodeStateTopic(1)), encode(presence(1, 21, 1)))
    assert state.is_identity_taken


def test_presence_of_an_earlier_process_is_overwritten_and_takes_nothing(state: ControlState) -> None:
    _sent(state, 0)
    state.receive(state.topics.name(NodeStateTopic(1)), encode(presence(1, 19, 2**40)))
    assert not state.is_identity_taken
    assert len(_sent(state, 10)) == 1


def test_epoch_that_an_ended_process_left_before_the_first_connection_takes_nothing() -> None:
    identity = ControlIdentity(cluster_id=CLUSTER, node_id=1, process_epoch=20, instance="mine", started_at_ms=20)
    state = ControlState(identity, clock=ManualClock())
    state.begin_connection()
    state.receive(state.topics.name(NodeStateTopic(1)), encode(presence(1, 99, 1, online=False)))
    assert not state.is_identity_taken


def test_leader_with_a_lower_epoch_is_not_announced_once_a_higher_one_is_known(state: ControlState) -> None:
    state.receive(state.topics.name(LEADER), encode(leader(2, 6)))
    assert not state.announce_leader(led(ORDERS, 1, 5))
    assert state.announced() == []


def test_leader_that_hears_of_a_higher_epoch_stops_announcing_itself(state: ControlState) -> None:
    state.announce_leader(led(ORDERS, 1, 5))
    state.receive(state.topics.name(LEADER), encode(leader(2, 6)))
    assert state.announced() == []
    assert [message.topic for message in _sent(state, 0)] == [state.topics.name(NodeStateTopic(1))]


def test_leader_that_was_cleared_on_the_broker_is_announced_again(state: ControlState) -> None:
    state.announce_leader(led(ORDERS, 1, 5))
    _sent(state, 0)
    state.receive(state.topics.name(LEADER), b"")
    assert [message.topic for message in _sent(state, 10)] == [state.topics.name(LEADER)]


def test_listener_hears_each_new_leader_once(state: ControlState) -> None:
    heard = []
    state.on_leader(lambda _, partition, message: heard.append((partition, message.leader)))
    for message in (leader(2, 5), leader(2, 5), leader(3, 4), leader(3, 6)):
        state.receive(state.topics.name(LEADER), encode(message))
    assert heard == [(0, 2), (0, 3)]


def _request(node: int) -> bytes:
    return encode(PeerRequest(cluster=CLUSTER, node=node, process_epoch=1, seq=1, ts=1))


def test_request_is_answered_at_the_topic_of_its_sender(state: ControlState) -> None:
    reply_to = state.topics.name(ReplyTopic(2, "abc"))
    request = state.receive(
        state.topics.name(RequestTopic(1, "status")), _request(2), response_topic=reply_to, correlation=CORRELATION
    )
    assert isinstance(request, ReceivedRequest)
    assert (request.verb, request.reply_to) == ("status", reply_to)


@pytest.mark.parametrize("reply_to", ["", "foreign/topic", ReplyTopic(3, "abc"), LEADER])
def test_request_that_wants_its_answer_elsewhere_is_damaged(
    state: ControlState, reply_to: str | ReplyTopic | LeaderTopic
) -> None:
    name = reply_to if isinstance(reply_to, str) else state.topics.name(reply_to)
    topic = state.topics.name(RequestTopic(1, "status"))
    assert state.receive(topic, _request(2), response_topic=name, correlation=CORRELATION) is None
    assert state.damaged == 1


def test_message_of_another_cluster_is_damaged(state: ControlState) -> None:
    state.receive(f"tierd/1/{new_cluster()}/node/2/state", encode(presence(2, 1, 1)))
    assert state.damaged == 1
    assert state.view.node(2) is None
