"""ControlView: the newest announcement of every node, partition and topic. Pure.

MQTT keeps no order across reconnects, delivers twice, and a broker may have old retained state (push-replication 4.2,
F31). The epochs in the payload decide: of a partition the highest (leader epoch, partition epoch) stays, of a node the
highest (process epoch, seq). What is not higher changes nothing.
"""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from tierd.control.mqtt.control_messages import LeaderAnnouncement, NodeState, PushSessionEvent, TopicAnnouncement
from tierd.control.mqtt.control_topics import PushEventTopic

MAX_NODES: Final = 1_000
MAX_PARTITIONS: Final = 100_000
MAX_TOPICS: Final = 20_000
_MAX_EVENT_ORDERS: Final = 20_000


class Reception(Enum):
    """Effect of an announcement on the view."""

    NEW = "new"
    REPEATED = "repeated"
    STALE = "stale"
    CONFLICT = "conflict"
    """Two announcements with the same epochs name different leaders; the first one stays."""
    REFUSED = "refused"
    """The view is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlViewCounts:
    """State of the view, and announcements since start that changed nothing."""

    nodes: int
    nodes_online: int
    partitions: int
    topics: int
    stale: int
    conflicts: int
    refused: int


class ControlView:
    """The state machine above, with bounds: an announcement of a node or a partition beyond a limit is refused."""

    def __init__(
        self, *, max_nodes: int = MAX_NODES, max_partitions: int = MAX_PARTITIONS, max_topics: int = MAX_TOPICS
    ) -> None:
        self._max_nodes = max_nodes
        self._max_partitions = max_partitions
        self._max_topics = max_topics
        self._nodes: dict[int, NodeState] = {}
        self._leaders: dict[tuple[UUID, int], LeaderAnnouncement] = {}
        self._topics: dict[UUID, TopicAnnouncement] = {}
        self._topic_orders: dict[tuple[UUID, int], tuple[int, int]] = {}
        self._event_orders: dict[tuple[int, PushEventTopic], tuple[int, int]] = {}
        self._counts = dict.fromkeys(Reception, 0)

    def node_state(self, message: NodeState) -> Reception:
        """Take note of the presence of a node."""
        known = self._nodes.get(message.node)
        if known is None and len(self._nodes) >= self._max_nodes:
            return self._counted(Reception.REFUSED)
        if known is not None and message.order <= known.order:
            return self._counted(Reception.REPEATED if message == known else Reception.STALE)
        self._nodes[message.node] = message
        return self._counted(Reception.NEW)

    def leader(self, topic_id: UUID, partition: int, message: LeaderAnnouncement) -> Reception:
        """Take note of the leader of a partition."""
        key = (topic_id, partition)
        known = self._leaders.get(key)
        if known is None and len(self._leaders) >= self._max_partitions:
            return self._counted(Reception.REFUSED)
        if known is not None and message.epochs <= known.epochs:
            return self._counted(_compared(message, known))
        self._leaders[key] = message
        return self._counted(Reception.NEW)

    def session_event(self, topic: PushEventTopic, message: PushSessionEvent) -> Reception:
        """Take note of an event of a push session; of a node and a replica the newest one counts."""
        key = (message.node, topic)
        known = self._event_orders.pop(key, None)
        is_newer = known is None or message.order > known
        self._event_orders[key] = message.order if known is None or is_newer else known
        if len(self._event_orders) > _MAX_EVENT_ORDERS:
            del self._event_orders[next(iter(self._event_orders))]
        if is_newer:
            return self._counted(Reception.NEW)
        return self._counted(Reception.REPEATED if message.order == known else Reception.STALE)

    def topic(self, topic_id: UUID, message: TopicAnnouncement) -> Reception:
        """Take note of the description of a topic; a topic that was deleted stays deleted."""
        known = self._topics.get(topic_id)
        if known is None and len(self._topics) >= self._max_topics:
            return self._counted(Reception.REFUSED)
        if known == message:
            return self._counted(Reception.REPEATED)
        order = self._topic_orders.get((topic_id, message.node))
        if (order is not None and message.order <= order) or (known is not None and known.deleted):
            return self._counted(Reception.STALE)
        self._note_order(topic_id, message)
        self._topics[topic_id] = message
        return self._counted(Reception.NEW)

    def clear_topic(self, topic_id: UUID) -> None:
        """Forget a topic whose description was cleared; its orders stay, so that an older one does not come back."""
        self._topics.pop(topic_id, None)

    def leader_of(self, topic_id: UUID, partition: int) -> LeaderAnnouncement | None:
        """Return the newest announcement about a partition; None without one."""
        return self._leaders.get((topic_id, partition))

    def node(self, node_id: int) -> NodeState | None:
        """Return the presence of a node; None for one that never announced itself."""
        return self._nodes.get(node_id)

    def nodes(self) -> tuple[NodeState, ...]:
        """Return the presence of all nodes, by node id. A lost daemon may be announced as online for a while."""
        return tuple(self._nodes[node_id] for node_id in sorted(self._nodes))

    def led_counts(self) -> Counter[int]:
        """Return the number of partitions whose newest announcement names a node as their leader, by node id."""
        return Counter(announcement.leader for announcement in self._leaders.values())

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic; None where it was not announced."""
        known = self._topics.get(topic_id)
        return known.name if known is not None else None

    def is_deleted(self, topic_id: UUID) -> bool:
        """Return True if the topic was announced as deleted."""
        known = self._topics.get(topic_id)
        return known is not None and known.deleted

    def counts(self) -> ControlViewCounts:
        """Return the sizes of the view, and what it dropped."""
        return ControlViewCounts(
            nodes=len(self._nodes),
            nodes_online=sum(node.online for node in self._nodes.values()),
            partitions=len(self._leaders),
            topics=len(self._topics),
            stale=self._counts[Reception.STALE],
            conflicts=self._counts[Reception.CONFLICT],
            refused=self._counts[Reception.REFUSED],
        )

    def _note_order(self, topic_id: UUID, message: TopicAnnouncement) -> None:
        orders = self._topic_orders
        orders.pop((topic_id, message.node), None)
        orders[topic_id, message.node] = message.order
        while len(orders) > 2 * self._max_topics:
            orders.pop(next(iter(orders)))

    def _counted(self, reception: Reception) -> Reception:
        self._counts[reception] += 1
        return reception


def _compared(message: LeaderAnnouncement, known: LeaderAnnouncement) -> Reception:
    """Return the effect of an announcement that is not higher than the known one."""
    if message.epochs < known.epochs:
        return Reception.STALE
    return Reception.REPEATED if message.leader == known.leader else Reception.CONFLICT
