"""ReplicaScanner: lists the log dirs, scans their partitions, and keeps the table of replicas in line with the disk."""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from tierd.control import LeadershipSource
from tierd.errors import LogDirOfflineError, LogError, PartitionNameError, SegmentChangedError
from tierd.log import (
    KnownDirectory,
    LogDirListing,
    PartitionDirectory,
    PartitionScan,
    list_log_dir,
    parse_directory_name,
    scan_again,
    scan_partition,
)
from tierd.model import TopicIdPartition
from tierd.tiering.local.hold import SegmentHold
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.replicas.catalog import CatalogChange, catalog_change
from tierd.tiering.replicas.replica import LogDirState, Replica, ReplicaListener, ReplicaTable

log = structlog.get_logger()

_SCANNED_PER_THREAD = 64
_SILENT_NS = 60_000_000_000  # a scan that lasts longer waits for a disk that hangs
_SETTLED_NS = 1_000_000_000  # a directory's mtime may not tell two changes within a tick of the kernel apart


@dataclass(slots=True)
class _Watching:
    """Functions that begin and end the watch of a directory."""

    watch: Callable[[Path], object] = field(default=lambda path: None)
    unwatch: Callable[[Path], object] = field(default=lambda path: None)


class ReplicaScanner:
    """Scanner of the log dirs, for replicas whose topic is tiered. One reconcile or scan runs at a time."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        table: ReplicaTable,
        hold: SegmentHold,
        leadership: LeadershipSource,
        listener: ReplicaListener,
        wants: Callable[[str], bool],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Read nothing yet.

        Args:
            log_dirs: the broker's log dirs; never written to.
            table: receives the replicas that are found.
            hold: keeps the files of queued segments.
            leadership: is asked about the partitions that are found.
            listener: is called when a replica appears, changes or vanishes.
            wants: tells whether a topic is tiered.
            now_ns: returns the wall clock as modification times of directories have it.
        """
        self._log_dirs = {path: LogDirState(path) for path in log_dirs}
        self._hold = hold
        self._leadership = leadership
        self._listener = listener
        self._wants = wants
        self._now_ns = now_ns
        self._table = table
        self._failed: dict[TopicIdPartition, tuple[PartitionDirectory, str]] = {}
        self._watching = _Watching()
        self._lock = asyncio.Lock()
        self._asked_ns: dict[Path, int] = {}  # begin of the listing or scan of a log dir that is under way

    def watch_with(self, watch: Callable[[Path], object], unwatch: Callable[[Path], object]) -> None:
        """Watch the directories of replicas with these functions from now on; call ``reconcile`` afterwards."""
        self._watching = _Watching(watch, unwatch)
        for path in self._table.paths():
            watch(path)

    @property
    def has_problem(self) -> bool:
        """Return True while a partition could not be scanned the last time, or cannot be led."""
        return bool(self._failed) or any(replica.problem for replica in self._table.all())

    def log_dirs(self) -> tuple[LogDirState, ...]:
        """Return the state of every log dir; a partition that could never be scanned counts as ignored.

        A scan has no deadline, because a thread that waits for a disk cannot be ended. A long wait is a problem here.
        """
        failed = self._failed.values()
        return tuple(
            replace(
                state,
                problem=state.problem or self._silence(state.path),
                ignored=(*state.ignored, *((d.path.name, why) for d, why in failed if d.path.parent == state.path)),
            )
            for state in self._log_dirs.values()
        )

    @property
    def online(self) -> tuple[Path, ...]:
        """Return the log dirs that the last listing could read."""
        return tuple(state.path for state in self._log_dirs.values() if not state.problem)

    async def recover_holds(self) -> None:
        """Take over the segments that an earlier process held."""
        await asyncio.to_thread(self._hold.recover)

    async def reconcile(self) -> None:
        """List every log dir and scan what is new or has changed. A log dir that cannot be listed stays as known."""
        async with self._lock:
            found, unreadable, offline, change = await self._compare()
            if change.vanished:
                # A replica that moves between two listings is in neither, and to forget one drops its holds.
                found, unreadable, offline, change = await self._compare()
            for partition in change.vanished:
                await self._forget(partition)
            for directory in change.unidentified:
                self._watching.watch(directory.path)
            touched = {directory.partition for directory in change.moved}
            await self._scan_all([*change.appeared, *change.moved, *await self._stale(touched, offline)])
            gone = set(self._failed) - {d.partition for d in found if d.topic_id is not None}
            for partition in gone:
                del self._failed[partition]
            if not (offline or unreadable or change.unidentified):
                await self._drop_orphaned_holds()

    async def scan(self, path: Path) -> bool:
        """Scan the replica in ``path`` again; return False when no replica is known there: then reconcile."""
        async with self._lock:
            replica = self._table.at(path)
            if replica is None:
                return False
            await self._scan_all([replica.local.directory])
            return True

    async def _compare(self) -> tuple[list[PartitionDirectory], list[Path], frozenset[Path], CatalogChange]:
        """List all log dirs; return partitions, unidentified directories, offline log dirs and the changes."""
        found: list[PartitionDirectory] = []
        unreadable: list[Path] = []
        for listing in await asyncio.gather(*(self._list(state) for state in self._log_dirs.values())):
            if listing is not None:
                found.extend(listing.partitions)
                unreadable.extend(_unreadable(listing))
        offline = frozenset(state.path for state in self._log_dirs.values() if state.problem)
        known = {replica.local.partition: replica.local.directory for replica in self._table.all()}
        change = catalog_change(known, found, offline=offline, unreadable=unreadable, wants=self._wants)
        return found, unreadable, offline, change

    @contextmanager
    def _asking(self, log_dir: Path) -> Iterator[None]:
        self._asked_ns[log_dir] = self._now_ns()
        try:
            yield
        finally:
            del self._asked_ns[log_dir]

    def _silence(self, log_dir: Path) -> str:
        """Return the problem of a log dir whose listing or scan has lasted for a minute; empty without a problem."""
        silent_ns = self._now_ns() - self._asked_ns.get(log_dir, self._now_ns())
        if silent_ns < _SILENT_NS:
            return ""
        return f"{log_dir}: a scan has lasted for {silent_ns // 10**9} s; the disk hangs or is slow"

    async def _list(self, state: LogDirState) -> LogDirListing | None:
        try:
            with self._asking(state.path):
                listing = await asyncio.to_thread(list_log_dir, state.path, known=self._known_in(state.path))
            if listing.is_blank:
                self._require_unused(state.path)
        except LogDirOfflineError as error:
            if state.problem != str(error):
                log.error("log_dir_offline", log_dir=str(state.path), problem=str(error), remedy=error.remedy)  # noqa: TRY400 - the cause is in the message
            state.problem = str(error)
            return None
        if state.problem:
            log.info("log_dir_online", log_dir=str(state.path))
        state.problem, state.ignored = "", listing.ignored
        return listing

    def _require_unused(self, log_dir: Path) -> None:
        """Raise for an empty log dir that had replicas, or while segments are held: these may be the last copies.

        Raises:
            LogDirOfflineError: its disk was wiped, or is not mounted.
        """
        if self._hold.partitions() or any(replica.local.log_dir == log_dir for replica in self._table.all()):
            raise LogDirOfflineError(
                f"log dir {log_dir} is empty: its disk was wiped, or is not mounted",
                remedy="mount it, or restore it before the broker starts; what is held of it stays held until then",
            )

    def _known_in(self, log_dir: Path) -> dict[str, KnownDirectory]:
        """Return the directories that need not be identified again: most of a broker's replicas never change."""
        return {
            local.path.name: KnownDirectory(local.directory, local.scan.mtime_ns)
            for local in (replica.local for replica in self._table.all())
            if local.log_dir == log_dir
        }

    async def _stale(self, touched: set[TopicIdPartition], offline: frozenset[Path]) -> list[PartitionDirectory]:
        """Return the directories that have changed since their last scan, or too shortly before it to tell."""
        candidates = [
            replica
            for replica in self._table.all()
            if replica.local.partition not in touched and replica.local.log_dir not in offline
        ]
        mtimes = await asyncio.to_thread(_mtimes, [str(replica.local.path) for replica in candidates])
        return [
            replica.local.directory
            for replica, mtime_ns in zip(candidates, mtimes, strict=True)
            if replica.problem or mtime_ns != replica.local.scan.mtime_ns or mtime_ns + _SETTLED_NS > replica.scanned_ns
        ]

    async def _scan_all(self, directories: Sequence[PartitionDirectory]) -> None:
        for log_dir in self._log_dirs:
            here = [each for each in directories if each.path.parent == log_dir]
            for start in range(0, len(here), _SCANNED_PER_THREAD):
                with self._asking(log_dir):
                    await self._scan(here[start : start + _SCANNED_PER_THREAD])

    async def _scan(self, directories: Sequence[PartitionDirectory]) -> None:
        for directory in directories:
            self._watching.watch(directory.path)  # before the scan: what changes after it is an event
        scanned_ns = self._now_ns()
        known = frozenset(each.path for each in directories if self._table.get(each.partition) is not None)
        for directory, scan in zip(directories, await asyncio.to_thread(_scan_many, directories, known), strict=True):
            await self._take(directory, scan, scanned_ns)

    async def _take(self, directory: PartitionDirectory, scan: PartitionScan | LogError, scanned_ns: int) -> None:
        partition = directory.partition
        replica = self._table.get(partition)
        if isinstance(scan, LogError):
            self._scan_failed(directory, replica, scan)
            return
        self._failed.pop(partition, None)
        if replica is None:
            replica = Replica(PartitionLog(scan, self._hold), scanned_ns=scanned_ns)
            self._table.add(replica)
            self._note_lineage(replica, scan)
            await self._listener.appeared(replica)
        else:
            moved = replica.local.directory != directory
            if moved:
                self._watching.unwatch(replica.local.path)
                self._table.move(replica, directory.path)
            replica.scanned_ns = scanned_ns
            try:
                await replica.local.adopt(scan)
            except LogError as error:
                self._scan_failed(directory, replica, error)
                return
            self._note_lineage(replica, scan)
            await self._listener.changed(replica, moved=moved)
        latest = scan.lineage.latest
        self._leadership.observe(partition, latest.epoch if latest else None)

    def _note_lineage(self, replica: Replica, scan: PartitionScan) -> None:
        """Report a log without leader epochs as an error: the log cannot be led, and would stall silently."""
        problem = scan.lineage_problem or "" if len(scan.segments) > 1 else ""
        if problem and problem != replica.problem:
            log.error("lineage_unusable", partition=str(replica.local.partition), problem=problem)
        replica.problem = problem

    def _scan_failed(self, directory: PartitionDirectory, replica: Replica | None, error: LogError) -> None:
        if isinstance(error, SegmentChangedError):
            log.info("partition_not_scanned", path=str(directory.path), problem=str(error))
        else:
            log.warning("partition_not_scanned", path=str(directory.path), problem=str(error), remedy=error.remedy)
        if replica is None:
            self._failed[directory.partition] = (directory, str(error))
        else:
            replica.problem = str(error)

    async def _forget(self, partition: TopicIdPartition) -> None:
        replica = self._table.remove(partition)
        self._watching.unwatch(replica.local.path)
        self._leadership.forget(partition)
        await self._listener.vanished(replica)
        dropped = await asyncio.to_thread(self._hold.drop_partition, replica.local.key)
        log.info("partition_gone", partition=str(partition), path=str(replica.local.path), holds_dropped=dropped)

    async def _drop_orphaned_holds(self) -> None:
        """Release the holds of partitions that no log dir has. All log dirs are healthy: the topics were deleted."""
        if not self._hold.partitions():
            return
        here = {replica.local.key for replica in self._table.all()}
        here.update((d.partition.topic_id, d.partition.partition) for d, _ in self._failed.values())
        for key in self._hold.partitions():
            if key not in here:
                dropped = await asyncio.to_thread(self._hold.drop_partition, key)
                log.info("orphaned_hold_dropped", topic_id=str(key[0]), partition=key[1], segments=dropped)


def _unreadable(listing: LogDirListing) -> list[Path]:
    """Return the directories whose name is that of a partition and that could not be identified."""
    paths = []
    for name, _ in listing.ignored:
        try:
            parse_directory_name(name)
        except PartitionNameError:
            continue
        paths.append(listing.log_dir / name)
    return paths


def _scan_many(directories: Sequence[PartitionDirectory], known: Collection[Path]) -> list[PartitionScan | LogError]:
    """Scan directories; those in ``known`` were not just identified. Blocking."""
    scans: list[PartitionScan | LogError] = []
    for directory in directories:
        try:
            scans.append((scan_again if directory.path in known else scan_partition)(directory))
        except LogError as error:
            scans.append(error)
    return scans


def _mtimes(paths: Sequence[str]) -> list[int]:
    """Return the modification time of each path in ns; -1 for a path that is gone."""
    times = []
    for path in paths:
        try:
            times.append(os.stat(path).st_mtime_ns)  # noqa: PTH116 - two thousand of them
        except OSError:
            times.append(-1)
    return times
