"""AnnouncedLeadership: a source of leadership whose roles are announced over MQTT as they begin."""

from collections.abc import AsyncGenerator, AsyncIterator

from tierd.control.leadership import Leadership, LeadershipSource, Role
from tierd.control.mqtt.control_state import LeaderFacts
from tierd.control.mqtt.mqtt_control import MqttControl
from tierd.model import TopicIdPartition


class AnnouncedLeadership:
    """Source that passes the roles of another source on, and announces the partitions that this broker leads.

    An announcement is put into a bounded queue; no role waits for the MQTT broker.
    """

    def __init__(self, inner: LeadershipSource, control: MqttControl, *, node_id: int) -> None:
        """Announce as ``node_id``; the roles are those of ``inner``."""
        self._inner = inner
        self._control = control
        self._node_id = node_id

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        """Hand the replica to the other source."""
        self._inner.observe(partition, leader_epoch)

    def forget(self, partition: TopicIdPartition) -> None:
        """Stop announcing the partition, since its replica is gone from this host."""
        self._control.state.withdraw_leader(partition.topic_id, partition.partition)
        self._inner.forget(partition)

    async def changes(self) -> AsyncIterator[Leadership]:
        """Yield the roles of the other source, each after its announcement. One consumer."""
        events = self._inner.changes()
        try:
            async for event in events:
                self._announce(event)
                yield event
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    def _announce(self, event: Leadership) -> None:
        state, partition = self._control.state, event.partition
        if event.role is Role.LEADER:
            state.announce_topic(partition.topic_id, name=partition.topic)
            state.announce_leader(self._led(event))
        else:
            state.withdraw_leader(partition.topic_id, partition.partition)
            if event.role is Role.DELETED:
                state.announce_topic(partition.topic_id, name=partition.topic, deleted=True)
        self._control.wake()

    def _led(self, event: Leadership) -> LeaderFacts:
        """Return the announcement; an equal one that is known already, such as an operator's, keeps its details."""
        topic_id, partition = event.partition.topic_id, event.partition.partition
        known = self._control.state.view.leader_of(topic_id, partition)
        is_known = known is not None and (known.leader, known.leader_epoch) == (self._node_id, event.leader_epoch)
        return LeaderFacts(
            topic_id=topic_id,
            partition=partition,
            leader=self._node_id,
            leader_epoch=event.leader_epoch,
            partition_epoch=known.partition_epoch if known is not None and is_known else 0,
            replicas=known.replicas if known is not None and is_known else (),
            isr=known.isr if known is not None and is_known else (),
        )
