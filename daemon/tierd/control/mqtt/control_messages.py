"""The messages of the control plane (push-replication 4.2): JSON in UTF-8, at most 4 KiB. Pure.

Every message has the fields of ``ControlMessage``. A field that is not known is ignored, so that a newer daemon may
add some; a field that is missing or wrong makes the message damaged.
"""

from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from tierd.control.mqtt.control_topics import (
    MAX_NODE_ID,
    ControlTopic,
    LeaderTopic,
    NodeStateTopic,
    PushEventTopic,
    ReplyTopic,
    RequestTopic,
    TopicMetaTopic,
)
from tierd.json_parsing import parse_json

MAX_PAYLOAD_BYTES: Final = 4096
OPERATOR: Final = -1
"""Node id of an announcement that no daemon made: an operator, or a tool that assigns leaders."""
CORRELATION_BYTES: Final = 16
_MAX_VALUES: Final = 2048

_Node = Annotated[int, Field(ge=0, le=MAX_NODE_ID)]
_Epoch = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Long = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Name = Annotated[str, Field(max_length=256)]


class DamagedControlMessageError(ValueError):
    """A message that is too large, is no JSON, lacks a field, or belongs to another cluster or node."""


class ControlMessage(BaseModel):
    """Fields of every message.

    Attributes:
        node: node id of the sender.
        process_epoch: of the sender's process; higher after each start of the daemon.
        seq: rises with the messages of a process.
        ts: wall clock of the sender, in milliseconds; nothing is decided by it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    v: Literal[1] = 1
    cluster: _Name
    node: Annotated[int, Field(ge=OPERATOR, le=MAX_NODE_ID)]
    process_epoch: _Long
    seq: _Long
    ts: _Long

    @property
    def order(self) -> tuple[int, int]:
        """Return the place of the message among those of its node."""
        return self.process_epoch, self.seq


class PeerEndpoint(BaseModel):
    """Address at which a daemon listens for push replication."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    host: Annotated[str, Field(min_length=1, max_length=255)]
    port: Annotated[int, Field(ge=1, le=65535)]


class NodeState(ControlMessage):
    """Presence of a daemon. With ``online`` false it is the will, which the MQTT broker publishes for a lost daemon.

    Attributes:
        instance: text of the process alone.
        started_at: wall clock in milliseconds.
        endpoint: address for push replication; None without.
    """

    online: bool
    instance: _Name = ""
    started_at: _Long
    endpoint: PeerEndpoint | None = None
    features: Annotated[tuple[_Name, ...], Field(max_length=32)] = ()
    version: _Name = ""


class LeaderAnnouncement(ControlMessage):
    """The leader of a partition. Receivers keep the highest leader epoch and partition epoch."""

    leader: _Node
    leader_epoch: _Epoch
    partition_epoch: _Epoch = 0
    replicas: Annotated[tuple[_Node, ...], Field(max_length=64)] = ()
    isr: Annotated[tuple[_Node, ...], Field(max_length=64)] = ()

    @property
    def epochs(self) -> tuple[int, int]:
        """Return the leader epoch and the partition epoch, which order the announcements of a partition."""
        return self.leader_epoch, self.partition_epoch


class PushSessionEvent(ControlMessage):
    """Begin or end of a push session; ``reason`` is of an end."""

    event: Literal["started", "ended"]
    leader_epoch: _Epoch
    replica_epoch: _Long
    session_id: _Long
    reason: _Name = ""


class TopicAnnouncement(ControlMessage):
    """Description of a Kafka topic; ``partitions`` and ``configs_digest`` are empty where the sender does not know."""

    name: Annotated[str, Field(min_length=1, max_length=249)]
    partitions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    configs_digest: _Name = ""
    deleted: bool = False


class PeerRequest(ControlMessage):
    """Request to a daemon; the topic has the verb. An empty list of partitions means all of them."""

    partitions: tuple[_Name, ...] = ()
    options: dict[str, JsonValue] = {}


class PeerReply(ControlMessage):
    """Answer of a daemon. ``error`` and ``remedy`` are of a failure."""

    ok: bool
    answer: JsonValue = None
    error: str = ""
    remedy: str = ""


ReceivedMessage = NodeState | LeaderAnnouncement | PushSessionEvent | TopicAnnouncement | PeerRequest | PeerReply
_Message = TypeVar("_Message", bound=ControlMessage)


def encode(message: ControlMessage) -> bytes:
    """Return the payload; it may be larger than ``MAX_PAYLOAD_BYTES``, which the queue refuses."""
    return message.model_dump_json().encode()


def decode(topic: ControlTopic, payload: bytes, *, cluster_id: str) -> ReceivedMessage | None:
    """Return the message that ``topic`` carries; None where a retained message was cleared.

    Raises:
        DamagedControlMessageError: the message cannot be used; says why.
    """
    if not payload and isinstance(topic, LeaderTopic | NodeStateTopic | TopicMetaTopic):
        return None
    message = _decoded(topic, payload)
    if message.cluster != cluster_id:
        raise DamagedControlMessageError("cluster: a message of another cluster")
    if isinstance(topic, NodeStateTopic) and message.node != topic.node_id:
        raise DamagedControlMessageError(f"node: {message.node} is not the node of the topic")
    return message


def _decoded(topic: ControlTopic, payload: bytes) -> ReceivedMessage:
    match topic:
        case NodeStateTopic():
            return _parse(NodeState, payload)
        case LeaderTopic():
            return _parse(LeaderAnnouncement, payload)
        case PushEventTopic():
            return _parse(PushSessionEvent, payload)
        case TopicMetaTopic():
            return _parse(TopicAnnouncement, payload)
        case RequestTopic():
            return _parse(PeerRequest, payload)
        case ReplyTopic():
            return _parse(PeerReply, payload)


def _parse(kind: type[_Message], payload: bytes) -> _Message:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise DamagedControlMessageError(f"{len(payload)} bytes, more than {MAX_PAYLOAD_BYTES}")
    try:
        parse_json(
            payload, unique_names=True, max_values=_MAX_VALUES
        )  # refuses what two parsers might read differently
        return kind.model_validate_json(payload)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, fault["loc"])) or "message"
        raise DamagedControlMessageError(f"{place}: {fault['msg']}") from error
    except ValueError as error:
        raise DamagedControlMessageError(str(error)) from error
