"""StaticLeadership: the configuration as the source of the led partitions, with epochs from their local files."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence

from tierd.control.leadership import Leadership, Role
from tierd.model import TopicIdPartition


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
