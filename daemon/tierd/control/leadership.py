"""LeadershipSource: the partitions that this broker leads, each with its leader epoch; and the one by configuration."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tierd.model import TopicIdPartition


class Role(Enum):
    """Role of this broker for a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    DELETED = "deleted"
    """The cluster does not know the topic id any more. Final; replicas that have left this host get this role, too."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition's role from now on.

    Attributes:
        is_sole_replica: the cluster named this broker as the only one with a replica when the role began. False where
            that is not known. Two events that differ in this alone are equal: no event reports only this.
    """

    partition: TopicIdPartition
    leader_epoch: int
    role: Role
    is_sole_replica: bool = field(default=False, compare=False)


class LeadershipSource(Protocol):
    """A source of roles. A later event about a partition replaces the earlier one."""

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        """Take note of a local replica and the latest epoch in its checkpoint, None while it has none."""

    def forget(self, partition: TopicIdPartition) -> None:
        """Note that the replica is gone from this host."""

    def changes(self) -> AsyncIterator[Leadership]:
        """Yield every role as it begins or changes; ends never. One consumer."""


class StaticLeadership:
    """Source of leadership by name: a replica that matches is led, at the latest epoch of its local checkpoint.

    This source is right where a broker leads all its partitions: a single broker, or a list that an operator keeps. If
    two daemons claim a partition, the metadata store fences one of them; this source does not notice.
    """

    def __init__(self, partitions: Sequence[str] = (".*",)) -> None:
        """Observe nothing yet; ``partitions`` are full-match patterns over ``topic-partition``.

        Raises:
            re.error: a pattern that is no regular expression.
        """
        self._patterns = tuple(re.compile(pattern) for pattern in partitions)
        self._known: dict[TopicIdPartition, Leadership] = {}
        # No bound on the count, but at most one event per partition and epoch that the partition ever had here.
        self._events: asyncio.Queue[Leadership] = asyncio.Queue()

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        """Announce the replica once it has an epoch, and again whenever the epoch grows."""
        if leader_epoch is None:
            return  # nothing was ever written under any leader; there is nothing to claim yet
        known = self._known.get(partition)
        if known is not None and leader_epoch <= known.leader_epoch:
            return
        event = Leadership(partition, leader_epoch, self._role(partition))
        self._known[partition] = event
        self._events.put_nowait(event)

    def forget(self, partition: TopicIdPartition) -> None:
        """Drop the replica; a replica that is seen again is announced again."""
        self._known.pop(partition, None)

    async def changes(self) -> AsyncIterator[Leadership]:
        """Yield roles as replicas are observed; an event that is outdated by the time it is read is left out."""
        while True:
            event = await self._events.get()
            if self._known.get(event.partition) == event:
                yield event

    def leads(self, partition: TopicIdPartition) -> bool:
        """Return True if the configuration names the partition as one that this broker leads."""
        return any(pattern.fullmatch(str(partition)) for pattern in self._patterns)

    def _role(self, partition: TopicIdPartition) -> Role:
        return Role.LEADER if self.leads(partition) else Role.FOLLOWER
