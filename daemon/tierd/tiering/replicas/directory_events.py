"""DirectoryEventQueue: changes on disk, gathered until the next scan. Events are hints, and equal hints are one."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from tierd.clock import Clock
from tierd.errors import LogDirOfflineError
from tierd.log import (
    CheckpointChanged,
    LogDirChanged,
    LogDirWatcher,
    Overflowed,
    PartitionChanged,
    WatchLimitReached,
)
from tierd.tasks import end_tasks
from tierd.tiering.replicas.replica_scanner import ReplicaScanner

log = structlog.get_logger()

WatcherFactory = Callable[[Sequence[Path]], LogDirWatcher]

_SETTLE_S = 0.05  # a roll creates several files; one scan at the end of it sees them all


@dataclass(slots=True)
class DirectoryEvents:
    """Changes since the last scan.

    Attributes:
        everything: all log dirs are to be scanned; then ``changed`` needs no scans of its own.
        changed: partition directories in which a name appeared or went.
        watermarks: log dirs whose high watermarks were written anew.
    """

    everything: bool = False
    changed: dict[Path, None] = field(default_factory=dict)
    watermarks: dict[Path, None] = field(default_factory=dict)


class DirectoryEventQueue:
    """Queue of the events that the watcher and other parts report, for one reader."""

    def __init__(self, log_dirs: Sequence[Path], *, new_watcher: WatcherFactory, clock: Clock, retry_s: float) -> None:
        """Watch nothing yet; ``retry_s`` is the wait before log dirs that could not be watched are tried again."""
        self._log_dirs = tuple(log_dirs)
        self._new_watcher = new_watcher
        self._clock = clock
        self._retry_s = retry_s
        self._events = DirectoryEvents()
        self._arrived = asyncio.Event()
        self._anew = asyncio.Event()
        self._incomplete = False

    @property
    def is_incomplete(self) -> bool:
        """Return True if a directory cannot be watched, so that only regular scans find its changes."""
        return self._incomplete

    def report(self, *, everything: bool = False, changed: Path | None = None, watermarks: Path | None = None) -> None:
        """Add an event, and wake the reader."""
        self._events.everything |= everything
        if changed is not None:
            self._events.changed[changed] = None
        if watermarks is not None:
            self._events.watermarks[watermarks] = None
        self._arrived.set()

    async def next(self, *, settled: bool) -> DirectoryEvents:
        """Wait for events and take all of them; with ``settled``, after a moment for a burst to end."""
        await self._arrived.wait()
        if settled:
            await self._clock.sleep(_SETTLE_S)
        self._arrived.clear()
        events, self._events = self._events, DirectoryEvents()
        return events

    def watch_anew(self) -> None:
        """Make new watches: a log dir has come back, and what was watched of it is gone."""
        self._anew.set()

    async def follow(self, scanner: ReplicaScanner) -> None:
        """Watch the log dirs that are there, and the directories of replicas, until cancelled."""
        while True:
            present = await asyncio.to_thread(lambda: [path for path in self._log_dirs if path.is_dir()])
            self._incomplete = len(present) < len(self._log_dirs)
            self._anew.clear()
            try:
                async with self._new_watcher(present) as watcher:
                    await _either(self._follow(watcher, scanner), self._anew)
            except LogDirOfflineError as error:
                log.warning("log_dirs_not_watched", problem=str(error), remedy=error.remedy)
                self._incomplete = True
                self.report(everything=True)
                await self._clock.sleep(self._retry_s)

    async def _follow(self, watcher: LogDirWatcher, scanner: ReplicaScanner) -> None:
        try:
            scanner.watch_with(watcher.watch_partition, watcher.unwatch_partition)
            self.report(everything=True)  # what happened before the watch began
            async for event in watcher.events():
                match event:
                    case PartitionChanged(path):
                        self.report(changed=path)
                    case CheckpointChanged(log_dir):
                        self.report(watermarks=log_dir)
                    case LogDirChanged() | Overflowed():
                        self.report(everything=True)
                    case WatchLimitReached():
                        self._incomplete = True
        finally:
            scanner.watch_with(_ignore, _ignore)  # this watcher is about to be closed


def _ignore(path: Path) -> None:
    """Watch nothing."""


async def _either(following: Coroutine[object, object, None], event: asyncio.Event) -> None:
    """Run ``following`` until it ends or ``event`` is set; what it raises is raised."""
    waits = [asyncio.create_task(following), asyncio.create_task(_set(event))]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end_tasks(waits)


async def _set(event: asyncio.Event) -> None:
    await event.wait()
