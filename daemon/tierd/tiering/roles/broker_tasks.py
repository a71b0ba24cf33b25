"""BrokerTasks: the tasks that serve the whole broker and no single replica, and the order in which they begin.

::

    start ─► PartitionRemover, AbandonedCopies ─► first reconcile ─► AbsentPartitions, LeftDeletions
                                                                 └─► metadata loaded ─► UploadSweep
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from tierd.control import LeadershipSource
from tierd.metadata import KeyValueStore, MetadataKeyFactory, list_partitions
from tierd.model import TopicIdPartition
from tierd.tiering.removing.abandoned import AbandonedCopies
from tierd.tiering.removing.left_deletions import LeftDeletions
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.removing.sweep import UploadSweep
from tierd.tiering.replicas.replica import ReplicaTable
from tierd.tiering.supervision import Supervisor
from tierd.tiering.topic_policy import FindTopicPolicy

log = structlog.get_logger()

_LOADING_DEADLINE_S: Final = 60.0
_INTERVAL_S: Final = 3600.0  # a cluster that did not answer for long enough is asked again


class AbsentPartitions:
    """Questions to leadership about partitions that only the metadata knows, of topics that take their tier with them.

    A topic that was deleted while tierd was down is in no log dir, and still in the tier. A ``PartitionTask``, to be
    started once the log dirs have been listed. Such a partition may also live on other brokers: then leadership
    announces nothing, and forgets the partition after a while.

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
        policies: FindTopicPolicy,
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


class BrokerTasks:
    """Tasks of the whole broker. What depends on the listing of the log dirs begins after the first reconcile.

    Attributes:
        first_reconcile_done: set once all log dirs were listed and scanned for the first time.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        replicas: ReplicaTable,
        remover: PartitionRemover,
        abandoned: AbandonedCopies,
        absent: AbsentPartitions,
        left: LeftDeletions,
        uploads: UploadSweep,
    ) -> None:
        """Start nothing yet.

        Args:
            supervisor: runs the tasks.
            replicas: the replicas of this host.
            remover: deletes whole partitions.
            abandoned: removes the objects of copies that ended in doubt.
            absent: asks the cluster about partitions that are in the tier and in no log dir.
            left: ends the deletions of partitions that left this host.
            uploads: discards unfinished uploads of dead processes.
        """
        self.first_reconcile_done = asyncio.Event()
        self._supervisor = supervisor
        self._replicas = replicas
        self._remover = remover
        self._abandoned = abandoned
        self._absent = absent
        self._left = left
        self._uploads = uploads

    def start(self) -> None:
        """Start the tasks that need no listing of the log dirs."""
        self._supervisor.start(self._remover)
        self._supervisor.start(self._abandoned)

    def reconciled(self) -> None:
        """Take note of a complete reconcile. The first one starts the tasks that need a listing of the log dirs."""
        if not self.first_reconcile_done.is_set():
            self._supervisor.start(self._absent)
            self._supervisor.start(self._left)
        self.first_reconcile_done.set()
        self._remover.wake.set()  # another broker may have left a deletion half done

    async def sweep_uploads(self) -> None:
        """Discard what dead processes left half uploaded, once this broker knows what it leads."""
        await self.first_reconcile_done.wait()
        await self.everything_loaded()
        await self._uploads.run_until_judged(self._replicas.loaded)

    async def everything_loaded(self) -> None:
        """Return when one attempt to load each led partition's metadata has ended, well or not, or after a minute."""
        try:
            async with asyncio.timeout(_LOADING_DEADLINE_S):
                for replica in self._replicas.all():
                    if replica.tasks.copy is not None:
                        await replica.tasks.copy.tried.wait()
        except TimeoutError:
            log.warning("metadata_not_loaded_yet", waited_s=_LOADING_DEADLINE_S)
