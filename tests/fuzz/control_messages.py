"""Targets: messages of the control plane, as a daemon hears them from an MQTT broker."""

from contextlib import suppress
from uuid import UUID

from tests.fuzz.target import Target
from tierd.control.mqtt.control_messages import (
    DamagedControlMessageError,
    LeaderAnnouncement,
    NodeState,
    PeerReply,
    PeerRequest,
    PushSessionEvent,
    TopicAnnouncement,
    decode,
    encode,
)
from tierd.control.mqtt.control_topics import (
    ControlTopics,
    LeaderTopic,
    NodeStateTopic,
    PushEventTopic,
    ReplyTopic,
    RequestTopic,
    TopicMetaTopic,
)

_ID = UUID(int=7)
_TOPICS = (
    NodeStateTopic(1),
    LeaderTopic(_ID, 0),
    PushEventTopic(_ID, 0, 2),
    TopicMetaTopic(_ID),
    RequestTopic(1, "status"),
    ReplyTopic(1, "a"),
)


def _message(data: bytes) -> None:
    """Read the bytes behind the first as a message of the topic that the first one chooses."""
    topic = _TOPICS[data[0] % len(_TOPICS)] if data else _TOPICS[0]
    with suppress(DamagedControlMessageError):
        found = decode(topic, data[1:], cluster_id="c")
        assert found is None or decode(topic, encode(found), cluster_id="c") == found


def _topic(data: bytes) -> None:
    topics, name = ControlTopics("c"), data.decode(errors="replace")
    with suppress(ValueError):
        found = topics.parse(name)
        assert topics.name(found) == name


def _messages() -> list[bytes]:
    state = NodeState(cluster="c", node=1, process_epoch=1, seq=1, ts=1, online=True, started_at=1)
    leader = LeaderAnnouncement(cluster="c", node=1, process_epoch=1, seq=1, ts=1, leader=1, leader_epoch=1, isr=(1, 2))
    event = PushSessionEvent(
        cluster="c",
        node=1,
        process_epoch=1,
        seq=1,
        ts=1,
        event="ended",
        leader_epoch=1,
        replica_epoch=1,
        session_id=1,
        reason="",
    )
    topic = TopicAnnouncement(cluster="c", node=1, process_epoch=1, seq=1, ts=1, name="orders")
    request = PeerRequest(cluster="c", node=1, process_epoch=1, seq=1, ts=1, partitions=("orders-0",), options={"a": 1})
    reply = PeerReply(cluster="c", node=1, process_epoch=1, seq=1, ts=1, ok=True, answer={"a": [1, None]})
    messages = (state, leader, event, topic, request, reply)
    return [bytes([number]) + encode(message) for number, message in enumerate(messages)]


def _names() -> list[bytes]:
    return [ControlTopics("c").name(topic).encode() for topic in _TOPICS]


TARGETS = (Target("control-message", _message, _messages), Target("control-topic", _topic, _names))
"""As ``tests.fuzz`` lists them."""
