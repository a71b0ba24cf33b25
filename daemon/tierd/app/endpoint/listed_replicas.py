"""ListedReplicas: the replicas in the log dirs of a host without a daemon, found by listing and watching."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from tierd.app.endpoint.local_replica import LocalReplica
from tierd.app.endpoint.served_topology import KnownPartition
from tierd.clock import Clock
from tierd.errors import LogDirOfflineError, LogError
from tierd.log import (
    CheckpointChanged,
    DirectoryKind,
    LogDirWatcher,
    PartitionDirectory,
    PartitionScan,
    list_log_dir,
    scan_partition,
)
from tierd.model import TopicIdPartition

log = structlog.get_logger()

_INTERVAL_S: Final = 30.0
_SETTLE_S: Final = 0.2


class ListedReplicas:
    """Replicas of topics that are served. Nothing is written and nothing is held."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        broker_id: int,
        is_led: Callable[[TopicIdPartition], bool],
        wants: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        """List nothing yet.

        Args:
            log_dirs: of a broker, which may run or not.
            broker_id: of that broker.
            is_led: tells whether the configuration says that the broker leads a partition.
            wants: tells whether a topic is served.
            clock: for the time between two listings.
        """
        self._log_dirs = tuple(log_dirs)
        self._broker_id = broker_id
        self._is_led = is_led
        self._wants = wants
        self._clock = clock
        self._scans: Mapping[TopicIdPartition, PartitionScan] = {}
        self._revision = 0

    @property
    def revision(self) -> int:
        """Return a number that grows with every listing that found a change."""
        return self._revision

    def known(self) -> Iterable[KnownPartition]:
        """Yield the replicas, with the broker as leader where the configuration says so."""
        for partition, scan in self._scans.items():
            latest = scan.lineage.latest
            leader = self._broker_id if self._is_led(partition) else None
            yield KnownPartition(partition, latest.epoch if latest else -1, leader)

    def find(self, partition: TopicIdPartition) -> LocalReplica | None:
        """Return the replica of a partition as it was listed last; None without one."""
        scan = self._scans.get(partition)
        return None if scan is None else LocalReplica(scan, self._is_led(partition))

    async def refresh(self) -> None:
        """List the log dirs, and scan the partitions that changed."""
        scans = await asyncio.to_thread(self._listed, dict(self._scans))
        if scans != self._scans:
            self._scans = scans
            self._revision += 1

    async def watch(self, on_watermarks: Callable[[Path], None]) -> None:
        """Follow the log dirs until cancelled; ``on_watermarks`` is called when watermarks of one were written."""
        if not self._log_dirs:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._refresh_regularly(), name="list log dirs")
            group.create_task(self._follow_events(on_watermarks), name="watch log dirs")

    async def _refresh_regularly(self) -> None:
        while True:
            await self._clock.sleep(_INTERVAL_S)
            await self.refresh()

    async def _follow_events(self, on_watermarks: Callable[[Path], None]) -> None:
        try:
            async with LogDirWatcher(self._log_dirs) as watcher:
                async for event in watcher.events():
                    if isinstance(event, CheckpointChanged):
                        on_watermarks(event.log_dir)
                    else:
                        await self._clock.sleep(_SETTLE_S)
                        await self.refresh()
        except LogDirOfflineError as error:
            log.warning("log_dirs_not_watched", problem=str(error), remedy=error.remedy)

    def _listed(self, before: Mapping[TopicIdPartition, PartitionScan]) -> Mapping[TopicIdPartition, PartitionScan]:
        found: dict[TopicIdPartition, PartitionScan] = {}
        for log_dir in self._log_dirs:
            try:
                directories = list_log_dir(log_dir).partitions
            except LogDirOfflineError as error:
                log.warning("log_dir_offline", log_dir=str(log_dir), problem=str(error))
                continue
            for directory in directories:
                is_served = directory.kind is DirectoryKind.CURRENT and directory.topic_id is not None
                if is_served and self._wants(directory.topic_partition.topic):
                    scan = _scanned(directory, before.get(directory.partition))
                    if scan is not None:
                        found[directory.partition] = scan
        return found


def _scanned(directory: PartitionDirectory, before: PartitionScan | None) -> PartitionScan | None:
    """Return the scan of a directory: the one before where nothing has changed; None where it cannot be scanned."""
    try:
        scan = scan_partition(directory)
    except LogError as error:
        log.info("partition_not_scanned", path=str(directory.path), problem=str(error))
        return before
    return before if before == scan else scan
