"""ControlTopics: the topics of the control plane (push-replication 4.2), from their parts and into them. Pure.

::

    tierd/1/<cluster>/node/<id>/state                       retained, and the will: NodeState
    tierd/1/<cluster>/node/<id>/rpc/<verb>                  PeerRequest
    tierd/1/<cluster>/node/<id>/rpc-reply/<instance>        PeerReply
    tierd/1/<cluster>/part/<topic id>/<p>/leader            retained: LeaderAnnouncement
    tierd/1/<cluster>/part/<topic id>/<p>/push/<replica>    PushSessionEvent
    tierd/1/<cluster>/topic/<topic id>/meta                 retained: TopicAnnouncement, empty when it is cleared
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote
from uuid import UUID

from tierd.model import uuid_from_text, uuid_to_text

MAX_NODE_ID: Final = 2**31 - 1
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_VERB: Final = re.compile(r"[a-z][a-z.-]{0,39}")
_INSTANCE: Final = re.compile(r"[0-9a-z]{1,40}")


@dataclass(frozen=True, slots=True)
class NodeStateTopic:
    """Topic of the presence of a node."""

    node_id: int


@dataclass(frozen=True, slots=True)
class RequestTopic:
    """Topic of requests with one verb to a node."""

    node_id: int
    verb: str


@dataclass(frozen=True, slots=True)
class ReplyTopic:
    """Topic of replies to one process of a node."""

    node_id: int
    instance: str


@dataclass(frozen=True, slots=True)
class LeaderTopic:
    """Topic of the leader of a partition."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class PushEventTopic:
    """Topic of the push sessions of a partition replica."""

    topic_id: UUID
    partition: int
    replica_id: int


@dataclass(frozen=True, slots=True)
class TopicMetaTopic:
    """Topic of the description of a Kafka topic."""

    topic_id: UUID


ControlTopic = NodeStateTopic | RequestTopic | ReplyTopic | LeaderTopic | PushEventTopic | TopicMetaTopic


class ControlTopics:
    """The topics of one cluster."""

    def __init__(self, cluster_id: str) -> None:
        """Take the cluster id; characters that mean something in a topic are escaped as in a URL."""
        self.prefix = f"tierd/1/{quote(cluster_id, safe='')}/"

    def name(self, topic: ControlTopic) -> str:
        """Return the name of ``topic`` on the MQTT broker."""
        return self.prefix + _path(topic)

    def parse(self, name: str) -> ControlTopic:
        """Return the topic of that name.

        Raises:
            ValueError: the name is no topic of this cluster's control plane.
        """
        if not name.startswith(self.prefix):
            raise ValueError("a topic of another cluster")
        return _parsed(name.removeprefix(self.prefix).split("/"))

    def subscriptions(self, node_id: int, instance: str) -> tuple[str, ...]:
        """Return the filters of a daemon: presence, leaders, sessions and topics of all, requests and replies to it."""
        own = f"node/{node_id}"
        filters = (
            f"{own}/rpc/+",
            f"{own}/rpc-reply/{instance}",
            "node/+/state",
            "topic/+/meta",
            "part/+/+/push/+",
            "part/+/+/leader",
        )
        return tuple(self.prefix + each for each in filters)


def _path(topic: ControlTopic) -> str:
    match topic:
        case NodeStateTopic(node_id):
            return f"node/{node_id}/state"
        case RequestTopic(node_id, verb):
            return f"node/{node_id}/rpc/{verb}"
        case ReplyTopic(node_id, instance):
            return f"node/{node_id}/rpc-reply/{instance}"
        case LeaderTopic(topic_id, partition):
            return f"part/{uuid_to_text(topic_id)}/{partition}/leader"
        case PushEventTopic(topic_id, partition, replica_id):
            return f"part/{uuid_to_text(topic_id)}/{partition}/push/{replica_id}"
        case TopicMetaTopic(topic_id):
            return f"topic/{uuid_to_text(topic_id)}/meta"


def _parsed(levels: list[str]) -> ControlTopic:
    match levels:
        case ["node", node, "state"]:
            return NodeStateTopic(_number(node))
        case ["node", node, "rpc", verb] if _VERB.fullmatch(verb):
            return RequestTopic(_number(node), verb)
        case ["node", node, "rpc-reply", instance] if _INSTANCE.fullmatch(instance):
            return ReplyTopic(_number(node), instance)
        case ["part", topic_id, partition, "leader"]:
            return LeaderTopic(_topic_id(topic_id), _number(partition))
        case ["part", topic_id, partition, "push", replica]:
            return PushEventTopic(_topic_id(topic_id), _number(partition), _number(replica))
        case ["topic", topic_id, "meta"]:
            return TopicMetaTopic(_topic_id(topic_id))
    raise ValueError("no topic of the control plane")


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > MAX_NODE_ID:
        raise ValueError(f"{text[:20]!r} is no number of a node or a partition")
    return int(text)


def _topic_id(text: str) -> UUID:
    topic_id = uuid_from_text(text)
    if uuid_to_text(topic_id) != text:  # the last character has bits that belong to no byte
        raise ValueError(f"{text!r} is not the usual text of a topic id")
    return topic_id
