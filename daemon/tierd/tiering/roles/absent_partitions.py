"""AbsentPartitions: a topic that was deleted while tierd was down is in no log dir, and still in the tier."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from tierd.control import LeadershipSource
from tierd.metadata import KeyValueStore, MetadataKeyFactory, list_partitions
from tierd.model import TopicIdPartition
from tierd.tiering.topic_policy import TopicPolicies

log = structlog.get_logger()

_INTERVAL_S: Final = 3600.0  # a cluster that did not answer for long enough is asked again


class AbsentPartitions:
    """Questions to leadership about partitions that only the metadata knows, of topics that take their tier with them.

    A ``PartitionTask``, to be started once the log dirs have been listed. Such a partition may also live on other
    brokers: then leadership announces nothing, and forgets the partition after a while.

    Attributes:
        name: the name; there is one such task.
        wake: an event that is never set: an hour is soon enough.
    """

    name: Final = "ask about absent partitions"

    def __init__(
        self,
        store: KeyValueStore,
        keys: MetadataKeyFactory,
        *,
        leadership: LeadershipSource,
        policies: TopicPolicies,
        is_here: Callable[[TopicIdPartition], bool],
    ) -> None:
        """Ask nothing yet; ``is_here`` returns True if a log dir of this host has the partition."""
        self._store = store
        self._keys = keys
        self._leadership = leadership
        self._policies = policies
        self._is_here = is_here
        self.wake: Final = asyncio.Event()

    async def run_once(self) -> float:
        """Ask about all absent partitions; return the seconds until the next time.

        Raises:
            MetadataError: the metadata store does not answer, or is damaged.
        """
        asked = 0
        for partition in await list_partitions(self._store, self._keys):
            if self._policies(partition.topic).delete_with_topic and not self._is_here(partition):
                self._leadership.observe(partition, None)
                self._leadership.forget(partition)  # as one that has just left this host
                asked += 1
        if asked:
            log.debug("asked_about_absent_partitions", partitions=asked)
        return _INTERVAL_S
