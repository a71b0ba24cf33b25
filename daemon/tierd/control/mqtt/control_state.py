"""ControlState: what a daemon says over MQTT, what it has heard, and what follows from a message. Pure.

The ``seq`` of a message has the number of the connection in its high half. The will of a connection has the highest
``seq`` of that connection: receivers take it after everything that came over the connection, and drop it when it comes
late, after a message of the next connection (push-replication F15, F31).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict
from uuid import UUID

from pydantic import JsonValue

from tierd.clock import Clock
from tierd.control.mqtt.control_messages import (
    CORRELATION_BYTES,
    DamagedControlMessageError,
    LeaderAnnouncement,
    NodeState,
    PeerEndpoint,
    PeerReply,
    PeerRequest,
    PushSessionEvent,
    ReceivedMessage,
    TopicAnnouncement,
    decode,
    encode,
)
from tierd.control.mqtt.control_topics import (
    ControlTopic,
    ControlTopics,
    LeaderTopic,
    NodeStateTopic,
    PushEventTopic,
    ReplyTopic,
    RequestTopic,
    TopicMetaTopic,
)
from tierd.control.mqtt.control_view import ControlView, Reception
from tierd.control.mqtt.publish_queue import OutgoingMessage, PublishQueue

_LAST_OF_CONNECTION: Final = 0xFFFFFFFF

LeaderListener = Callable[[UUID, int, LeaderAnnouncement], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlIdentity:
    """Identity of this process on the control plane.

    Attributes:
        process_epoch: higher than that of every earlier process of the node.
        instance: text of this process alone, in the topic of the replies to it.
        endpoint: address for push replication, None without.
    """

    cluster_id: str
    node_id: int
    process_epoch: int
    instance: str
    started_at_ms: int
    version: str = ""
    features: tuple[str, ...] = ()
    endpoint: PeerEndpoint | None = None

    @property
    def client_id(self) -> str:
        """Return the client id at the MQTT broker; a second connection with it ends the first one."""
        return f"tierd-{self.cluster_id}-{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderFacts:
    """A partition and its leader, as this daemon announces them."""

    topic_id: UUID
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request of a peer that waits for an answer at ``reply_to``."""

    verb: str
    message: PeerRequest
    reply_to: str
    correlation: bytes


@dataclass(frozen=True, slots=True)
class ReceivedReply:
    """A reply of a peer."""

    message: PeerReply
    correlation: bytes


class _Envelope(TypedDict):
    """Fields that every message has."""

    cluster: str
    node: int
    process_epoch: int
    seq: int
    ts: int


@dataclass(slots=True)
class _Led:
    """Announcement of this daemon."""

    epochs: tuple[int, int]
    facts: LeaderFacts = field(repr=False)


class ControlState:
    """Announcements of this daemon, the view of all others, and the messages that wait."""

    def __init__(self, identity: ControlIdentity, *, clock: Clock, rate_per_s: int = 200) -> None:
        self.identity = identity
        self.topics = ControlTopics(identity.cluster_id)
        self.view = ControlView()
        self.queue = PublishQueue(rate_per_s=rate_per_s)
        self.damaged = 0
        self.is_identity_taken = False
        self._was_connected = False
        self._clock = clock
        self._connection = 0
        self._seq = 0
        self._own_seq = 0  # of the latest presence that was published
        self._led: dict[tuple[UUID, int], _Led] = {}
        self._listeners: list[LeaderListener] = []
        self._own_state = self.topics.name(NodeStateTopic(identity.node_id))
        self.reply_topic = self.topics.name(ReplyTopic(identity.node_id, identity.instance))

    def on_leader(self, listener: LeaderListener) -> None:
        """Call ``listener`` with each new announcement of a leader; it must not raise."""
        self._listeners.append(listener)

    # ---------------------------------------------------------------- what this daemon says

    def begin_connection(self) -> OutgoingMessage:
        """Count a connection that is about to begin, and return its will."""
        self._connection += 1
        self._seq = 0
        return self._state_message(online=False, seq=_LAST_OF_CONNECTION)

    def on_connected(self) -> None:
        """Publish the presence, and then all other state again: the broker may have lost it."""
        self._was_connected = True
        self.queue.drop_direct()
        self.queue.repeat_all()
        self.queue.retain(self._own_state, self._state_message(online=True).payload, is_urgent=True)

    def farewell(self) -> OutgoingMessage:
        """Return the presence to publish before the daemon disconnects."""
        return self._state_message(online=False)

    def announce_leader(self, led: LeaderFacts) -> bool:
        """Announce a leader; an unchanged one is not sent again. Returns False if a higher epoch is known already."""
        key, epochs = (led.topic_id, led.partition), (led.leader_epoch, led.partition_epoch)
        known = self._led.get(key)
        if known is not None and known.facts == led:
            return True
        announced = self.view.leader_of(*key)
        if announced is not None and (announced.epochs > epochs or (known is not None and known.epochs > epochs)):
            return False
        message = LeaderAnnouncement(
            **self._envelope(),
            leader=led.leader,
            leader_epoch=led.leader_epoch,
            partition_epoch=led.partition_epoch,
            replicas=led.replicas,
            isr=led.isr,
        )
        topic = LeaderTopic(*key)
        if not self.queue.retain(self.topics.name(topic), encode(message)):
            return False
        self._led[key] = _Led(epochs, led)
        self._hear_leader(topic, message)
        return True

    def withdraw_leader(self, topic_id: UUID, partition: int) -> None:
        """Stop announcing a partition that this daemon leads no more; the next leader announces itself."""
        if self._led.pop((topic_id, partition), None) is not None:
            self.queue.withdraw(self.topics.name(LeaderTopic(topic_id, partition)))

    def announced(self) -> list[tuple[UUID, int]]:
        """Return the partitions that this daemon announces."""
        return list(self._led)

    def announce_topic(self, topic_id: UUID, *, name: str, deleted: bool = False) -> bool:
        """Announce the name of a topic, unless it is known already. Returns False if it was refused."""
        if self.view.topic_name(topic_id) == name and self.view.is_deleted(topic_id) == deleted:
            return True
        message = TopicAnnouncement(**self._envelope(), name=name, deleted=deleted)
        topic = self.topics.name(TopicMetaTopic(topic_id))
        return self.queue.retain(topic, encode(message)) and self.view.topic(topic_id, message) is not Reception.REFUSED

    def announce_session(
        self,
        topic: PushEventTopic,
        event: Literal["started", "ended"],
        *,
        leader_epoch: int,
        replica_epoch: int,
        session_id: int,
        reason: str = "",
    ) -> bool:
        """Announce the begin or the end of a push session; of several within a second the last one is sent."""
        message = PushSessionEvent(
            **self._envelope(),
            event=event,
            leader_epoch=leader_epoch,
            replica_epoch=replica_epoch,
            session_id=session_id,
            reason=reason,
        )
        return self.queue.event(self.topics.name(topic), encode(message))

    def request(
        self,
        node_id: int,
        verb: str,
        *,
        correlation: bytes,
        partitions: Sequence[str],
        options: dict[str, JsonValue],
        expiry_s: int,
    ) -> bool:
        """Send a request to a peer. Returns False if it was refused: too large, or too many wait."""
        message = PeerRequest(**self._envelope(), partitions=tuple(partitions), options=options)
        return self.queue.direct(
            OutgoingMessage(
                topic=self.topics.name(RequestTopic(node_id, verb)),
                payload=encode(message),
                expiry_s=expiry_s,
                response_topic=self.reply_topic,
                correlation=correlation,
            )
        )

    def reply(self, request: ReceivedRequest, *, answer: JsonValue = None, error: str = "", remedy: str = "") -> bool:
        """Send the answer to a request, or the error. Returns False if it was refused."""
        message = PeerReply(**self._envelope(), ok=not error, answer=answer, error=error, remedy=remedy)
        return self.queue.direct(
            OutgoingMessage(
                topic=request.reply_to, payload=encode(message), expiry_s=60, correlation=request.correlation
            )
        )

    def echo(self) -> PeerReply:
        """Return a reply of this daemon to itself."""
        return PeerReply(**self._envelope(), ok=True)

    # ---------------------------------------------------------------- what it hears

    def receive(
        self, name: str, payload: bytes, *, response_topic: str = "", correlation: bytes = b""
    ) -> ReceivedRequest | ReceivedReply | None:
        """Take note of a message. Returns a request that is to be answered, or a reply that may be waited for.

        A message that cannot be used is counted in ``damaged`` and changes nothing.
        """
        try:
            topic = self.topics.parse(name)
            message = decode(topic, payload, cluster_id=self.identity.cluster_id)
            match topic, message:
                case RequestTopic(_, verb), PeerRequest():
                    return self._request(verb, message, response_topic, correlation)
                case ReplyTopic(), PeerReply():
                    return ReceivedReply(message, correlation)
        except (DamagedControlMessageError, ValueError):
            self.damaged += 1
            return None
        self._hear(topic, message)
        return None

    def _hear(self, topic: ControlTopic, message: ReceivedMessage | None) -> None:
        match topic, message:
            case NodeStateTopic(node_id), NodeState() | None:
                self._hear_node(node_id, message)
            case LeaderTopic(), LeaderAnnouncement():
                self._hear_leader(topic, message)
            case LeaderTopic(topic_id, partition), None:
                if (topic_id, partition) in self._led:
                    self.queue.repeat(self.topics.name(topic))
            case PushEventTopic(), PushSessionEvent():
                self.view.session_event(topic, message)
            case TopicMetaTopic(topic_id), TopicAnnouncement():
                self.view.topic(topic_id, message)
            case TopicMetaTopic(topic_id), None:
                self.view.clear_topic(topic_id)

    def _hear_node(self, node_id: int, message: NodeState | None) -> None:
        if node_id == self.identity.node_id:
            self._hear_own_presence(message)
        if message is not None:
            self.view.node_state(message)

    def _hear_own_presence(self, message: NodeState | None) -> None:
        """Publish the presence again where the broker has an older one, such as a late will.

        A later process with this identity has taken it: a broker need not tell the daemon whose connection it ends for
        the sake of another one. What an ended process left behind is no later process, whatever its epoch is: a clock
        may have been set back.
        """
        identity = self.identity
        if message is None or message.order < (identity.process_epoch, self._own_seq):
            self.queue.repeat(self._own_state)
        elif message.instance != identity.instance and (message.online or self._was_connected):
            self.is_identity_taken = True

    def _hear_leader(self, topic: LeaderTopic, message: LeaderAnnouncement) -> None:
        key = (topic.topic_id, topic.partition)
        reception = self.view.leader(*key, message)
        led = self._led.get(key)
        if led is not None and message.epochs < led.epochs:
            self.queue.repeat(self.topics.name(topic))  # the broker keeps an older leader than this one
        elif led is not None and message.epochs > led.epochs:
            self.withdraw_leader(*key)
        if reception is Reception.NEW:
            for listener in self._listeners:
                listener(*key, message)

    def _request(
        self, verb: str, message: PeerRequest, response_topic: str, correlation: bytes
    ) -> ReceivedRequest | None:
        """Return the request if its reply goes to the sender: no client can have a reply published to another one."""
        reply_to = self.topics.parse(response_topic)
        if not isinstance(reply_to, ReplyTopic) or reply_to.node_id != message.node:
            raise DamagedControlMessageError("the reply is wanted at a topic that is not the sender's")
        if len(correlation) != CORRELATION_BYTES:
            raise DamagedControlMessageError(f"correlation data of {len(correlation)} bytes")
        return ReceivedRequest(verb, message, response_topic, correlation)

    # ---------------------------------------------------------------- envelopes

    def _state_message(self, *, online: bool, seq: int | None = None) -> OutgoingMessage:
        identity = self.identity
        message = NodeState(
            **self._envelope(seq),
            online=online,
            instance=identity.instance,
            started_at=identity.started_at_ms,
            endpoint=identity.endpoint,
            features=identity.features,
            version=identity.version,
        )
        if online:
            self._own_seq = message.seq
        if seq is None:
            self.view.node_state(message)
        return OutgoingMessage(topic=self._own_state, payload=encode(message), retain=True)

    def _envelope(self, seq: int | None = None) -> "_Envelope":
        if seq is None:
            self._seq += 1
            seq = self._seq
        return {
            "cluster": self.identity.cluster_id,
            "node": self.identity.node_id,
            "process_epoch": self.identity.process_epoch,
            "seq": (self._connection << 32) | min(seq, _LAST_OF_CONNECTION),
            "ts": max(0, self._clock.now_ms()),
        }
