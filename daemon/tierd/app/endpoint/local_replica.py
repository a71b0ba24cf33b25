"""LocalReplica: a partition in a log dir of this host, as the endpoint sees it; LiveScan keeps its scan current."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tierd.log import PartitionScan, scan_partition


class LocalReplica(NamedTuple):
    """Replica of a partition.

    Attributes:
        scan: its latest scan.
        is_leader: the broker of this host leads the partition, so that no end of the log is newer than this one.
    """

    scan: PartitionScan
    is_leader: bool

    @property
    def log_dir(self) -> Path:
        """Return the log dir that has the replica."""
        return self.scan.directory.path.parent


class LiveScan:
    """Scan of one replica for readers, who meet a change of the directory before its event is handled."""

    def __init__(self) -> None:
        self._own: PartitionScan | None = None
        self._based_on: PartitionScan | None = None
        self._begun = 0
        self._scanning = asyncio.Lock()

    async def current(self, latest: PartitionScan, *, is_doubted: bool) -> PartitionScan:
        """Return the scan to read by: ``latest``, or a later one; with ``is_doubted`` one that begins after the call.

        Raises:
            SegmentChangedError: the directory is gone, or the broker is replacing segments at this moment.
            LogDirOfflineError: the directory cannot be read.
        """
        if is_doubted:
            await self._scan_again(latest)
        return self._own if self._own is not None and self._based_on is latest else latest

    async def _scan_again(self, latest: PartitionScan) -> None:
        begun = self._begun
        async with self._scanning:
            if self._begun > begun and self._based_on is latest:
                return  # readers who meet a change together share one scan
            self._begun += 1
            scan = await asyncio.to_thread(scan_partition, latest.directory)
            is_same = replace(scan, mtime_ns=latest.mtime_ns) == latest
            self._own, self._based_on = (None if is_same else scan), latest
