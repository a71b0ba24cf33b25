"""TailWatches: what is watched for each followed log, and the logs to poll where the kernel allows no more watches.

Two watches for each log: its active file for MODIFY, by ``GrowthWatch``, and its directory for names, by the
``LogDirWatcher`` of its log dir.
"""

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from tierd.log import LogDirWatcher, PartitionDirectory
from tierd.model import TopicIdPartition
from tierd.replication.tail.growth_watch import GrowthWatch
from tierd.replication.tail.tail_values import TailPosition

log = structlog.get_logger()

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_RETRY_S: Final = 60.0
_LIMIT_ADVICE: Final = "raise fs.inotify.max_user_watches; until then these logs are polled"


@dataclass(slots=True)
class _WatchedLog:
    directory: PartitionDirectory
    is_directory_watched: bool = False
    watch: int = -1
    inode: int = 0


@dataclass(frozen=True, slots=True)
class GrownLogs:
    """Logs whose active file changed; with ``is_incomplete`` events were lost, so that any may have changed."""

    partitions: tuple[TopicIdPartition, ...]
    is_incomplete: bool


class TailWatches:
    """The watches of all followed logs. On the event loop."""

    def __init__(self, *, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._growth: GrowthWatch | None = None
        self._names: dict[Path, LogDirWatcher] = {}
        self._logs: dict[TopicIdPartition, _WatchedLog] = {}
        self._by_watch: dict[int, TopicIdPartition] = {}
        self._by_path: dict[Path, TopicIdPartition] = {}
        self._retry_s = 0.0
        self.problem = ""

    @property
    def watched(self) -> int:
        """Return the number of logs that are watched for growth."""
        return len(self._by_watch)

    # ---------------------------------------------------------------- the sources of events

    def open(self) -> GrowthWatch | None:
        """Open the watch of growth; None, with a ``problem``, where the kernel allows none."""
        try:
            self._growth = GrowthWatch()
        except OSError as error:
            self._refused(f"{error.strerror}: raise fs.inotify.max_user_instances; until then all logs are polled")
        return self._growth

    def close(self) -> None:
        """End all watches of growth."""
        if self._growth is not None:
            self._growth.close()
        self._growth = None
        self._by_watch.clear()

    def use_names(self, log_dir: Path, watcher: LogDirWatcher | None) -> None:
        """Take the watcher of a log dir; its directories are watched with their next poll."""
        self._names.pop(log_dir, None)
        if watcher is not None:
            self._names[log_dir] = watcher
        for each in self._logs.values():
            if each.directory.path.parent == log_dir:
                each.is_directory_watched = False

    def grown(self) -> GrownLogs:
        """Take the events since the last call."""
        if self._growth is None:
            return GrownLogs((), is_incomplete=False)
        found = self._growth.take()
        partitions = [self._by_watch[watch] for watch in found.changed | found.gone if watch in self._by_watch]
        for watch in found.gone:
            partition = self._by_watch.pop(watch, None)
            if partition is not None and (known := self._logs.get(partition)) is not None:
                known.watch = -1
        return GrownLogs(tuple(partitions), found.is_incomplete)

    def partition_at(self, path: Path) -> TopicIdPartition | None:
        """Return the partition that is followed in a directory."""
        return self._by_path.get(path)

    def directories(self, log_dir: Path) -> Iterable[tuple[TopicIdPartition, PartitionDirectory]]:
        """Return the followed logs of a log dir with their directories."""
        return [(each, it.directory) for each, it in self._logs.items() if it.directory.path.parent == log_dir]

    # ---------------------------------------------------------------- the logs

    def cover(self, partition: TopicIdPartition, position: TailPosition) -> bool:
        """Watch the directory and the active file of a log; return True if a watch is new: then poll once more."""
        known = self._logs.get(partition)
        if known is None or known.directory != position.directory:
            self.forget(partition)
            known = self._logs[partition] = _WatchedLog(position.directory)
            self._by_path[position.directory.path] = partition
        is_new = False
        if not known.is_directory_watched and self._may_try():
            is_new = known.is_directory_watched = self._watch_directory(position.directory.path)
        if (known.watch < 0 or known.inode != position.inode) and position.inode and self._may_try():
            is_new = self._watch_file(partition, known, position) or is_new
        return is_new

    def is_watched(self, partition: TopicIdPartition) -> bool:
        """Return True if events tell of every change of a log."""
        known = self._logs.get(partition)
        return known is not None and known.watch >= 0 and known.is_directory_watched

    def forget(self, partition: TopicIdPartition) -> None:
        """End the watches of a log; one without watches is no error."""
        known = self._logs.pop(partition, None)
        if known is None:
            return
        path = known.directory.path
        if self._by_path.get(path) == partition:
            del self._by_path[path]
            if (names := self._names.get(path.parent)) is not None:
                names.unwatch_partition(path)
        self._drop(known)

    def _watch_directory(self, path: Path) -> bool:
        names = self._names.get(path.parent)
        return names is not None and names.watch_partition(path)

    def _watch_file(self, partition: TopicIdPartition, known: _WatchedLog, position: TailPosition) -> bool:
        if self._growth is None:
            return False
        try:
            watch = self._growth.add(position.log)
        except OSError as error:
            if error.errno not in _GONE:
                self._refused(f"{position.log}: {error.strerror}: {_LIMIT_ADVICE}")
            return False
        is_new = watch != known.watch
        if is_new:
            self._drop(known)
            self._by_watch[watch] = partition
        known.watch, known.inode = watch, position.inode
        return is_new

    def _drop(self, known: _WatchedLog) -> None:
        if known.watch >= 0:
            self._by_watch.pop(known.watch, None)
            if self._growth is not None:
                self._growth.remove(known.watch)
            known.watch = -1

    def limit_reached(self, path: Path) -> None:
        """Take note that the kernel allows no more watches of directories."""
        self._refused(f"{path}: no watch: {_LIMIT_ADVICE}")

    def _refused(self, problem: str) -> None:
        if not self.problem:
            log.warning("tail_watch_refused", problem=problem)
        self.problem = problem
        self._retry_s = self._monotonic_s() + _RETRY_S

    def _may_try(self) -> bool:
        """Return False for a while after the kernel has refused a watch."""
        if not self.problem or self._growth is None:
            return self._growth is not None
        if self._monotonic_s() < self._retry_s:
            return False
        self.problem = ""
        return True
