"""LocalReplica: a partition in a log dir of this host, as the endpoint sees it; LiveScan keeps its scan current.

CutEnd finds the end of a log that was cut back.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from tierd.log import PartitionScan, find_cut_end, scan_partition

_FRESH_NS: Final = 100_000_000  # a later change might not move so young a modification time


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


class _KnownCut(NamedTuple):
    """Files that were walked, and the answer.

    Attributes:
        stamp: modification time of the directory; inode, size and modification time of the last log file.
    """

    scan: PartitionScan
    high_watermark: int
    stamp: tuple[int, ...]
    cut_at: int | None


class CutEnd:
    """End of one log that was cut back below its high watermark. Its files are walked again only after a change.

    After a crash the offset index may point behind the end of its log. The walk then begins at the first batch.
    """

    def __init__(self) -> None:
        self._known: _KnownCut | None = None

    def find(self, scan: PartitionScan, *, high_watermark: int) -> int | None:
        """Return what ``find_cut_end`` returns. Blocking, for any thread."""
        stamp, known = _stamp(scan), self._known
        if known is not None and known.scan is scan and (known.high_watermark, known.stamp) == (high_watermark, stamp):
            return known.cut_at
        cut_at = find_cut_end(scan, high_watermark=high_watermark)
        self._known = None if stamp is None else _KnownCut(scan, high_watermark, stamp, cut_at)
        return cut_at


def _stamp(scan: PartitionScan) -> tuple[int, ...] | None:
    """Return what moves with every later change; None where that is not certain."""
    try:
        directory, log = scan.directory.path.stat(), scan.segments[-1].log.stat()
    except (IndexError, OSError):
        return None
    if time.time_ns() - max(directory.st_mtime_ns, log.st_mtime_ns) < _FRESH_NS:
        return None
    return directory.st_mtime_ns, log.st_ino, log.st_size, log.st_mtime_ns
