"""LogDirWatcher: log dirs and partition directories under inotify, as a stream of hints (DESIGN 3).

A hint only names the place that may have changed. A periodic scan finds changes without a hint.
"""

import asyncio
import errno
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from asyncinotify import Event, Inotify, Mask

from tierd.errors import LogDirOfflineError
from tierd.log.files.checkpoints import REPLICATION_OFFSET_CHECKPOINT

log = structlog.get_logger()

# Never MODIFY: a busy broker appends thousands of times a second, and only names matter here.
_MASK = Mask.CREATE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.DELETE | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
_SELF_GONE = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT
_EVENTS_READ_AT_ONCE = 64
_COALESCED_AT_MOST = 1_000  # so that a burst does not hold the event loop for long
_LOG_DIR_FILES = frozenset({REPLICATION_OFFSET_CHECKPOINT})


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A file in this partition directory appeared, vanished or was renamed."""

    path: Path


@dataclass(frozen=True, slots=True)
class LogDirChanged:
    """A directory in this log dir appeared, vanished or was renamed; or the log dir itself did."""

    log_dir: Path


@dataclass(frozen=True, slots=True)
class CheckpointChanged:
    """The high watermarks of this log dir were written anew."""

    log_dir: Path


@dataclass(frozen=True, slots=True)
class WatchLimitReached:
    """One directory, and perhaps later ones, cannot be watched: the caller has to scan them periodically."""

    path: Path


@dataclass(frozen=True, slots=True)
class Overflowed:
    """Hints were lost: the caller has to scan everything again."""


LogDirEvent = PartitionChanged | LogDirChanged | CheckpointChanged | WatchLimitReached | Overflowed


class LogDirWatcher:
    """Watcher of log dirs from ``async with`` on, and of the partition directories that ``watch_partition`` names.

    Hints wait in the queue of the kernel alone; a full queue leads to ``Overflowed``. Equal hints that wait are merged.
    """

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        self._log_dirs = tuple(log_dirs)
        self._inotify: Inotify | None = None
        self._paths: dict[int, Path] = {}  # watch descriptor to path; the library's own paths do not follow a rename
        self._descriptors: dict[Path, int] = {}
        self._own: deque[LogDirEvent] = deque(maxlen=1 + len(self._log_dirs))
        self._limit_reached = False
        self._wake = asyncio.Event()

    async def __aenter__(self) -> Self:
        try:
            self._inotify = Inotify(cache_size=_EVENTS_READ_AT_ONCE, sync_timeout=0)
        except OSError as error:
            raise LogDirOfflineError(
                f"log dirs cannot be watched: {error.strerror}",
                remedy="raise fs.inotify.max_user_instances of the kernel, or LimitNOFILE= of the unit",
            ) from error
        try:
            for log_dir in self._log_dirs:
                self._add(log_dir)
        except OSError as error:
            self._inotify.close()
            raise LogDirOfflineError(
                f"log dir {error.filename}: {error.strerror}", remedy="check the disk, the mount and who may read it"
            ) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def watch_partition(self, path: Path) -> bool:
        """Watch a partition directory; return False for a directory that is gone already.

        The first time that the kernel allows no more watches, a ``WatchLimitReached`` event reports it.
        """
        try:
            self._add(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                log.info("partition_not_watched", path=str(path), problem=error.strerror)
            elif not self._limit_reached:  # ENOSPC: fs.inotify.max_user_watches; ENOMEM alike
                self._limit_reached = True
                log.warning("watch_limit_reached", path=str(path), problem=error.strerror)
                self._announce(WatchLimitReached(path))
            return False
        return True

    def unwatch_partition(self, path: Path) -> None:
        """Stop watching a partition directory; one that is not watched is no error."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is None or self._paths.get(descriptor) != path:
            return  # the same directory goes on being watched under its new name
        del self._paths[descriptor]
        inotify = self._require_open()
        watch = next((w for w in inotify.watches if w.wd == descriptor), None)
        if watch is not None:
            try:
                inotify.rm_watch(watch)
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: the directory is gone, and its watch with it
                    raise

    async def events(self) -> AsyncIterator[LogDirEvent]:
        """Yield the changes since the last call, without an end. One consumer."""
        loop, fd = asyncio.get_running_loop(), self._require_open().fd

        def readable() -> None:
            # Level-triggered: while the consumer is busy, waiting events must not spin the loop.
            loop.remove_reader(fd)
            self._wake.set()

        try:
            while True:
                loop.add_reader(fd, readable)
                await self._wake.wait()
                self._wake.clear()
                for event in self._drain():
                    yield event
        finally:
            if self._inotify is not None:
                loop.remove_reader(fd)

    def _drain(self) -> list[LogDirEvent]:
        """Return the hints that wait, each once, in order of its first occurrence."""
        found: dict[LogDirEvent, None] = {}
        while self._own:
            found[self._own.popleft()] = None
        inotify = self._require_open()
        for _ in range(_COALESCED_AT_MOST):
            raw = inotify.sync_get()
            if raw is None:
                return list(found)
            if (event := self._translate(raw)) is not None:
                found[event] = None
        self._wake.set()  # more is waiting
        return list(found)

    def _translate(self, raw: Event) -> LogDirEvent | None:
        if Mask.Q_OVERFLOW in raw.mask:
            log.warning("watch_queue_overflowed")
            return Overflowed()
        watch = raw.watch
        path = self._paths.get(watch.wd) if watch is not None else None
        if path is None or watch is None:
            return None
        if Mask.IGNORED in raw.mask:
            self._forget(watch.wd, path)
            return None
        if path in self._log_dirs:
            return self._translate_in_log_dir(path, raw)
        if raw.mask & _SELF_GONE:
            return LogDirChanged(path.parent)
        name = str(raw.name or "")
        return None if name.endswith(".tmp") else PartitionChanged(path)

    def _translate_in_log_dir(self, log_dir: Path, raw: Event) -> LogDirEvent | None:
        if raw.mask & _SELF_GONE or Mask.ISDIR in raw.mask:
            return LogDirChanged(log_dir)
        if str(raw.name) in _LOG_DIR_FILES and raw.mask & (Mask.MOVED_TO | Mask.CREATE):
            return CheckpointChanged(log_dir)
        return None

    def _add(self, path: Path) -> None:
        watch = self._require_open().add_watch(path, _MASK)
        self._paths[watch.wd] = path
        self._descriptors[path] = watch.wd

    def _forget(self, descriptor: int, path: Path) -> None:
        self._paths.pop(descriptor, None)
        if self._descriptors.get(path) == descriptor:
            del self._descriptors[path]

    def _announce(self, event: LogDirEvent) -> None:
        self._own.append(event)
        self._wake.set()

    def _require_open(self) -> Inotify:
        if self._inotify is None:
            raise RuntimeError("the watcher is used outside of its async with")
        return self._inotify
