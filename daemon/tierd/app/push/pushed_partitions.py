"""PushedPartitions: the partitions of this host's log dirs whose topics are sent, found by listing and watching.

A partition without topic id or leader epoch is pending: a broker writes both with the leadership or the first append.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from tierd.clock import Clock, wait_for_event
from tierd.errors import LogDirOfflineError, LogError
from tierd.log import (
    DirectoryKind,
    KnownDirectory,
    LogDirWatcher,
    PartitionDirectory,
    list_log_dir,
    parse_directory_name,
    read_lineage,
)
from tierd.model import PartitionKey, TopicIdPartition

log = structlog.get_logger()

LIST_INTERVAL_S: Final = 30.0
_SETTLE_S: Final = 0.05
_RETRY_S: Final = 5.0


class PushedPartition(NamedTuple):
    """A partition in a log dir.

    Attributes:
        leader_epoch: the newest one of the local files.
    """

    partition: TopicIdPartition
    log_dir: Path
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionsFound:
    """Result of a listing of all log dirs.

    Attributes:
        here: the partitions that have a topic id and a leader epoch.
        deleted: topic id and number of the directories that wait for their deletion.
        pending: directories that have not both yet.
        is_complete: False while a log dir, or a directory in one, could not be read: what is missing may be there.
    """

    here: Mapping[TopicIdPartition, PushedPartition]
    deleted: frozenset[PartitionKey] = frozenset()
    pending: frozenset[Path] = frozenset()
    is_complete: bool = True

    def is_deleted(self, partition: TopicIdPartition) -> bool:
        """Return True if the partition is gone, and its directory waits for its deletion."""
        return partition not in self.here and (partition.topic_id, partition.partition) in self.deleted


class PushedPartitions:
    """Lister of the log dirs. For one event loop; ``watch`` is its task."""

    def __init__(self, log_dirs: Sequence[Path], *, wants: Callable[[str], bool], clock: Clock) -> None:
        """List nothing yet; ``wants`` returns True if a topic is sent."""
        self._log_dirs = tuple(log_dirs)
        self._wants = wants
        self._clock = clock
        self._changed = asyncio.Event()
        self._seen: dict[Path, tuple[KnownDirectory, int]] = {}  # with the leader epoch
        self._watcher: LogDirWatcher | None = None
        self._watched: set[Path] = set()  # pending directories
        self._offline: dict[Path, str] = {}

    def list_again(self) -> None:
        """List as soon as possible: topics may be sent now that were not before, or the other way round."""
        self._changed.set()

    async def listings(self) -> AsyncIterator[PartitionsFound]:
        """Yield a listing at once, after each change, and at intervals; ends never. ``watch`` runs meanwhile.

        A partition that moves between two log dirs may be in neither while they are listed: a listing that lacks one of
        the last listing is made a second time.
        """
        before: PartitionsFound | None = None
        while True:
            self._changed.clear()
            found = await self._list()
            if before is not None and before.here.keys() - found.here.keys():
                found = await self._list()
            yield found
            self._watch_pending(found.pending)
            before = found
            if await wait_for_event(self._changed, self._clock, LIST_INTERVAL_S):
                await self._clock.sleep(_SETTLE_S)

    async def watch(self) -> None:
        """Report changes of the log dirs until cancelled; without a watch, listings come at intervals alone."""
        while True:
            try:
                async with LogDirWatcher(self._log_dirs) as watcher:
                    self._watcher, self._watched = watcher, set()
                    self._changed.set()
                    async for _ in watcher.events():
                        self._changed.set()
            except LogDirOfflineError as error:
                log.warning("push_log_dirs_not_watched", problem=str(error), remedy=error.remedy)
            finally:
                self._watcher = None
            await self._clock.sleep(_RETRY_S)

    def _watch_pending(self, pending: Iterable[Path]) -> None:
        """Watch the pending directories, and list again for what came before the watch."""
        if self._watcher is None:
            return
        for path in self._watched.difference(pending):
            self._watcher.unwatch_partition(path)
        new = {path for path in pending if path not in self._watched and self._watcher.watch_partition(path)}
        self._watched = self._watched.intersection(pending) | new
        if new:
            self._changed.set()

    async def _list(self) -> PartitionsFound:
        listed = await asyncio.gather(*(self._list_log_dir(log_dir) for log_dir in self._log_dirs))
        self._seen = {path: seen for each in listed for path, seen in each.seen.items()}
        here: dict[TopicIdPartition, PushedPartition] = {}
        for each in listed:
            for found in each.found:
                here.setdefault(found.partition, found)
        return PartitionsFound(
            here,
            deleted=frozenset(key for each in listed for key in each.deleted),
            pending=frozenset(path for each in listed for path in each.pending),
            is_complete=all(each.is_complete for each in listed),
        )

    async def _list_log_dir(self, log_dir: Path) -> "_ListedPartitions":
        seen = {path: known for path, known in self._seen.items() if path.parent == log_dir}
        try:
            listed = await asyncio.to_thread(_list_log_dir, log_dir, seen, self._wants)
        except LogDirOfflineError as error:
            if self._offline.get(log_dir) != str(error):
                log.warning("push_log_dir_offline", log_dir=str(log_dir), problem=str(error), remedy=error.remedy)
            self._offline[log_dir] = str(error)
            return _ListedPartitions(seen, is_complete=False)
        self._offline.pop(log_dir, None)
        return listed


class _ListedPartitions:
    """The partitions of one log dir, while they are collected."""

    def __init__(self, seen: dict[Path, tuple[KnownDirectory, int]], *, is_complete: bool) -> None:
        self.seen = seen
        self.found: list[PushedPartition] = []
        self.deleted: set[PartitionKey] = set()
        self.pending: set[Path] = set()
        self.is_complete = is_complete


def _list_log_dir(
    log_dir: Path, before: Mapping[Path, tuple[KnownDirectory, int]], wants: Callable[[str], bool]
) -> _ListedPartitions:
    """List a log dir. Blocking.

    Raises:
        LogDirOfflineError: it cannot be listed.
    """
    known = {path.name: each for path, (each, _) in before.items()}
    listing = list_log_dir(log_dir, known=known)
    listed = _ListedPartitions({}, is_complete=not any(_may_be_partition(name) for name, _ in listing.ignored))
    for directory in listing.partitions:
        topic_id, name = directory.topic_id, directory.topic_partition
        if directory.kind is DirectoryKind.DELETE and topic_id is not None:
            listed.deleted.add((topic_id, name.partition))
        elif directory.kind is DirectoryKind.CURRENT and wants(name.topic):
            _take(listed, directory, before.get(directory.path))
    return listed


def _take(listed: _ListedPartitions, directory: PartitionDirectory, before: tuple[KnownDirectory, int] | None) -> None:
    seen = before if before is not None and before[0].directory is directory else _identified(directory)
    if seen is None:
        listed.pending.add(directory.path)
        return
    listed.seen[directory.path] = seen
    listed.found.append(PushedPartition(directory.partition, directory.path.parent, seen[1]))


def _identified(directory: PartitionDirectory) -> tuple[KnownDirectory, int] | None:
    """Return the directory with its leader epoch; None while it lacks that, or its topic id."""
    try:
        mtime_ns = directory.path.stat().st_mtime_ns  # first: what changes later counts as a change
        latest = read_lineage(directory.path).latest
    except (LogError, OSError):
        return None
    if latest is None or directory.topic_id is None:
        return None
    return KnownDirectory(directory, mtime_ns), latest.epoch


def _may_be_partition(name: str) -> bool:
    with contextlib.suppress(LogError):
        parse_directory_name(name)
        return True
    return False
