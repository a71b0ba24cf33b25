"""MqttLeadership: announcements over MQTT as the source of the leaders of partitions.

An announcement is no authority: the metadata store fences a daemon that acts on an old one. So no announcement deletes
anything, and a deleted topic keeps its tier (push-replication 4.1). Without an announcement a partition has no role.
While the MQTT broker is lost, every role stays as it is.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tierd.control.leadership import Leadership, Role
from tierd.control.mqtt.control_messages import LeaderAnnouncement
from tierd.control.mqtt.mqtt_control import MqttControl
from tierd.errors import ControlPlaneError, ControlPlaneUnreachableError
from tierd.model import TopicIdPartition

_NOT_HEARD: Final = "announcements of leaders were not heard yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttLeadershipStatistics:
    """Numbers of the observed partitions by role, and the state of the connection."""

    source: str = "mqtt"
    leaders: int
    followers: int
    unknown: int
    outdated: int
    """Partitions whose announcement is older than the epoch in the local log."""
    problem: str = ""
    remedy: str = ""


@dataclass(slots=True)
class _ObservedReplica:
    """One local replica."""

    partition: TopicIdPartition
    local_epoch: int | None
    reported: Leadership | None = None


class MqttLeadership:
    """Source of leadership that follows the announcements of leaders, those of operators included."""

    def __init__(self, control: MqttControl, *, node_id: int) -> None:
        """Observe nothing yet; ``node_id`` is the broker of this host."""
        self._control = control
        self._view = control.state.view
        self._node_id = node_id
        self._observed: dict[tuple[UUID, int], _ObservedReplica] = {}
        self._due: dict[tuple[UUID, int], None] = {}  # bounded by the observed partitions
        self._changed = asyncio.Event()
        control.state.on_leader(self._heard)

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        """Take note of a local replica and the latest epoch in its checkpoint."""
        key = (partition.topic_id, partition.partition)
        observed = self._observed.get(key)
        if observed is None:
            observed = self._observed[key] = _ObservedReplica(partition, leader_epoch)
        elif leader_epoch is not None:
            observed.local_epoch = max(leader_epoch, -1 if observed.local_epoch is None else observed.local_epoch)
        self._mark(key)

    def forget(self, partition: TopicIdPartition) -> None:
        """Note that the replica is gone from this host; its tier stays."""
        key = (partition.topic_id, partition.partition)
        self._observed.pop(key, None)
        self._due.pop(key, None)

    async def changes(self) -> AsyncIterator[Leadership]:
        """Yield every role as it begins or changes; ends never. One consumer."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._due:
                key = next(iter(self._due))
                del self._due[key]
                if (event := self._next(key)) is not None:
                    yield event

    def leads(self, partition: TopicIdPartition) -> bool:
        """Return True if the newest announcement names this broker as the leader of the partition."""
        announced = self._view.leader_of(partition.topic_id, partition.partition)
        return announced is not None and announced.leader == self._node_id

    def not_ready(self) -> str:
        """Return in one line why the roles are not known; empty when they are."""
        if self._control.has_heard:
            return ""
        problem = self._control.statistics().problem
        return f"{_NOT_HEARD}: {problem}" if problem else _NOT_HEARD

    @property
    def never_heard(self) -> ControlPlaneError | None:
        """Return the error for announcements that were never heard; None once they were."""
        if self._control.has_heard:
            return None
        statistics = self._control.statistics()
        return ControlPlaneUnreachableError(statistics.problem or _NOT_HEARD, remedy=statistics.remedy)

    def close(self) -> None:
        """Forget the partitions; the connection is the control plane's."""
        self._observed.clear()
        self._due.clear()

    def statistics(self) -> MqttLeadershipStatistics:
        """Return the present state."""
        roles = [each.reported.role if each.reported is not None else None for each in self._observed.values()]
        control = self._control.statistics()
        return MqttLeadershipStatistics(
            leaders=roles.count(Role.LEADER),
            followers=roles.count(Role.FOLLOWER),
            unknown=roles.count(None),
            outdated=sum(self._is_outdated(each) for each in self._observed.values()),
            problem=control.problem,
            remedy=control.remedy,
        )

    def _heard(self, topic_id: UUID, partition: int, _: LeaderAnnouncement) -> None:
        if (topic_id, partition) in self._observed:
            self._mark((topic_id, partition))

    def _mark(self, key: tuple[UUID, int]) -> None:
        self._due[key] = None
        self._changed.set()

    def _next(self, key: tuple[UUID, int]) -> Leadership | None:
        """Return the role of a partition if it is another one than before."""
        observed, announced = self._observed.get(key), self._view.leader_of(*key)
        if observed is None or announced is None or self._is_outdated(observed):
            return None
        role = Role.LEADER if announced.leader == self._node_id else Role.FOLLOWER
        event = Leadership(
            observed.partition,
            announced.leader_epoch,
            role,
            is_sole_replica=announced.replicas == (self._node_id,),
        )
        if event == observed.reported:
            return None
        observed.reported = event
        return event

    def _is_outdated(self, observed: _ObservedReplica) -> bool:
        """Return True if the local log has records of a later leader than the announced one."""
        partition = observed.partition
        announced = self._view.leader_of(partition.topic_id, partition.partition)
        local = observed.local_epoch
        return announced is not None and local is not None and announced.leader_epoch < local
