"""PartitionLog: the state of one local partition, which the manager scans and a task copies; the lag of the tier."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import LogDirOfflineError
from tierd.log import PartitionDirectory, PartitionScan, scan_again
from tierd.model import OffsetRange, PartitionKey, TopicIdPartition
from tierd.tiering.copy_plan import overlaps, without_range
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.local.hold import SegmentHold


@dataclass(frozen=True, slots=True)
class PendingSegment:
    """Rolled segment as it was last seen on disk.

    Attributes:
        end_offset: last offset, inclusive.
        modified_ms: wall clock of its last append.
    """

    end_offset: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class CopyLag:
    """Lag of the tier. ``oldest_ms`` is a wall clock, so that an age is right when it is computed."""

    segments: int = 0
    bytes: int = 0
    oldest_ms: int | None = None


def copy_lag(pending: Iterable[PendingSegment], *, copied_through: int) -> CopyLag:
    """Sum up the segments that end above ``copied_through``.

    A segment of which the tier has only the beginning counts whole, for it is copied whole; one that ends exactly
    at the frontier does not (remote-tiering 17.3 D).
    """
    behind = [segment for segment in pending if segment.end_offset > copied_through]
    return CopyLag(
        segments=len(behind),
        bytes=sum(segment.size_bytes for segment in behind),
        oldest_ms=min((segment.modified_ms for segment in behind), default=None),
    )


class PartitionLog:
    """Partition directory as it was last scanned, and its rolled segments that are not in the tier yet.

    State changes only on the event loop; scanning and holding happen in threads, one at a time per partition.
    """

    def __init__(self, scan: PartitionScan, hold: SegmentHold) -> None:
        self._scan = scan
        self._log_dir = scan.directory.path.parent  # asked for everywhere, of thousands at a time
        self._hold = hold
        self._scanning = asyncio.Lock()
        self._pending: tuple[HeldSegment, ...] = ()
        self._measured_through = -1  # frontier for which ``_pending`` was taken
        self._holes: tuple[OffsetRange, ...] = ()  # below that frontier
        self._protects = False
        self._share = 1.0
        self._lag = CopyLag()
        self._lag_of: tuple[HeldSegment, ...] = self._pending

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition, by topic id."""
        return self._scan.directory.partition

    @property
    def key(self) -> PartitionKey:
        """Return the key of the partition's holds."""
        return self.partition.topic_id, self.partition.partition

    @property
    def directory(self) -> PartitionDirectory:
        """Return the partition's directory; another one after a move between log dirs."""
        return self._scan.directory

    @property
    def path(self) -> Path:
        """Return the path of the partition directory."""
        return self._scan.directory.path

    @property
    def log_dir(self) -> Path:
        """Return the log dir that has the partition."""
        return self._log_dir

    @property
    def scan(self) -> PartitionScan:
        """Return the latest scan."""
        return self._scan

    @property
    def pending(self) -> tuple[HeldSegment, ...]:
        """Return the rolled segments above the frontier or in its holes, ascending, each held where possible."""
        return self._pending

    @property
    def held(self) -> tuple[HeldSegment, ...]:
        """Return the segments that are held, ascending, in the tier or not."""
        return self._hold.held(self.key)

    async def rescan(self, directory: PartitionDirectory | None = None) -> PartitionScan:
        """Scan again, at ``directory`` if it moved, and hold what has rolled.

        Raises:
            SegmentChangedError: the directory is gone, or is another topic's by now.
            LogDirOfflineError: the log dir does not answer.
        """
        async with self._scanning:
            scan = await asyncio.to_thread(scan_again, directory or self._scan.directory)
            await self._adopt(scan)
        return self._scan

    async def adopt(self, scan: PartitionScan) -> None:
        """Take over a scan of another caller, and hold what has rolled.

        Raises:
            LogDirOfflineError: a file cannot be examined; the previous scan stays.
        """
        async with self._scanning:
            await self._adopt(scan)

    async def protect(
        self, *, copied_through: int, holes: Sequence[OffsetRange] = (), share: float = 1.0
    ) -> tuple[HeldSegment, ...]:
        """Hold every rolled segment above ``copied_through``, or in ``holes``, from now on, and return them.

        Called once the frontier is known: before that, holding would link every segment of a tier that has them all.
        Nothing new is held while more than ``share`` of what may be held at all is held.
        """
        async with self._scanning:
            self._measured_through, self._holes = copied_through, tuple(holes)
            self._protects = True
            self._share = share
            await self._adopt(self._scan)
        return self._pending

    async def release(self) -> None:
        """Release all holds, and count nothing as due: the partition is not copied."""
        async with self._scanning:
            self._protects = False
            self._pending = ()
            await asyncio.to_thread(self._hold.drop_partition, self.key)

    async def copied(self, held: HeldSegment) -> None:
        """Note that ``held`` is in the tier and release it. Cancelled, a later scan releases it."""
        self._measured_through = max(self._measured_through, held.end_offset)
        self._holes = without_range(self._holes, OffsetRange(held.base_offset, held.end_offset))
        self._pending = tuple(filter(self._is_due, self._pending))
        async with self._scanning:  # or a scan that began before would hold it again
            await asyncio.to_thread(self._hold.release, self.key, held.base_offset)

    async def hold_again(self, held: HeldSegment) -> HeldSegment:
        """Hold ``held`` as it is in the log now and return that; ``held`` itself if the broker has deleted it."""
        async with self._scanning:
            await asyncio.to_thread(self._hold.release_if_live, self._scan, held.base_offset)
            await self._adopt(self._scan)
        return next((segment for segment in self._pending if segment.base_offset == held.base_offset), held)

    def lag(self) -> CopyLag:
        """Return the lag as last seen; it is right also while no task copies. It is summed up after a change only."""
        if self._lag_of is not self._pending:
            self._lag, self._lag_of = _lag(self._pending), self._pending
        return self._lag

    def _is_due(self, held: HeldSegment) -> bool:
        is_above = held.end_offset > self._measured_through
        return is_above or overlaps(self._holes, held.base_offset, held.end_offset)

    async def _adopt(self, scan: PartitionScan) -> None:
        # Most partitions of most brokers have one segment, and a thread costs more than all the rest of a scan.
        if self._protects and (self._pending or self._hold.concerns(scan)):
            try:
                async with self._hold.turn(scan.directory.path.parent):
                    through = self._measured_through
                    pending = await asyncio.to_thread(
                        self._hold.protect, scan, copied_through=through, holes=self._holes, share=self._share
                    )
            except OSError as error:
                raise LogDirOfflineError(
                    f"{error.filename or self.path}: {error.strerror}",
                    remedy="check the disk; the log dir is scanned again",
                ) from error
            # A copy may have been finished while the thread was at it.
            self._pending = tuple(filter(self._is_due, pending))
        self._scan, self._log_dir = scan, scan.directory.path.parent


def _lag(pending: Iterable[HeldSegment]) -> CopyLag:
    return copy_lag(
        (
            PendingSegment(end_offset=held.end_offset, size_bytes=held.size_bytes, modified_ms=held.modified_ms)
            for held in pending
        ),
        copied_through=-1,  # all that is pending is due, some of it below the frontier
    )
