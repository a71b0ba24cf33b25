"""Upkeep: keeps replicas in line with the disk. Events from the log dirs wake it, and one timer."""

from collections.abc import Callable
from pathlib import Path

from tierd.clock import Clock
from tierd.config import CopySettings
from tierd.errors import TierError
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.replicas.directory_events import DirectoryEventQueue, DirectoryEvents
from tierd.tiering.replicas.replica import ReplicaTable
from tierd.tiering.replicas.replica_scanner import ReplicaScanner
from tierd.tiering.roles.broker_tasks import BrokerTasks

_JITTER = 0.2


class WatermarkWaker:
    """Waker of the copy tasks whose queued segments wait for a higher high watermark, and of other listeners."""

    def __init__(self, replicas: ReplicaTable, log_offsets: LogOffsets) -> None:
        self._replicas = replicas
        self._log_offsets = log_offsets
        self._listeners: list[Callable[[Path], None]] = []

    def on_written(self, listener: Callable[[Path], None]) -> None:
        """Call ``listener`` with each log dir whose high watermarks were written anew; it must not block."""
        self._listeners.append(listener)

    async def wake_waiting(self, log_dir: Path) -> None:
        """Wake the waiting tasks of ``log_dir`` whose high watermark has moved or cannot be read, and the listeners."""
        for listener in self._listeners:
            listener(log_dir)
        for replica in self._replicas.all():
            task = replica.tasks.copy
            if task is None or not task.state.awaits_high_watermark or replica.local.log_dir != log_dir:
                continue
            try:
                offsets = await self._log_offsets.offsets(log_dir, replica.local.partition)
            except TierError:
                task.wake.set()  # its pass reports the damage
                continue
            if offsets.high_watermark != task.state.high_watermark:
                task.wake.set()


class Upkeep:
    """Periodic and event-driven scans of the log dirs."""

    def __init__(
        self,
        replicas: ReplicaScanner,
        *,
        events: DirectoryEventQueue,
        watermarks: WatermarkWaker,
        tasks: BrokerTasks,
        recorder: TieringRecorder,
        clock: Clock,
        settings: CopySettings,
        random: Callable[[], float],
    ) -> None:
        """Scan nothing yet.

        Args:
            replicas: lists and scans the log dirs.
            events: gathers the events of the log dirs.
            watermarks: wakes the tasks that wait for a high watermark.
            tasks: take note of every complete reconcile.
            recorder: counts reconciles.
            clock: time.
            settings: the intervals.
            random: returns a number in [0, 1), for jitter.
        """
        self._replicas = replicas
        self._events = events
        self._watermarks = watermarks
        self._tasks = tasks
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._random = random
        self._online: frozenset[Path] = frozenset()

    async def watch(self) -> None:
        """Gather the events of the log dirs until cancelled."""
        await self._events.follow(self._replicas)

    async def maintain(self) -> None:
        """Scan what changed, whenever an event arrives, until cancelled."""
        while True:
            await self._maintain(await self._events.next(settled=self._is_settled))

    async def ask_regularly(self) -> None:
        """Ask for a reconcile at intervals until cancelled; the interval is short while something is not watched."""
        while True:
            broken = self._events.is_incomplete or self._replicas.has_problem
            interval_s = self._settings.interval_s if broken else self._settings.reconcile_interval_s
            await self._clock.sleep(interval_s * (1 - _JITTER + 2 * _JITTER * self._random()))
            self._events.report(everything=True)

    @property
    def _is_settled(self) -> bool:
        return self._tasks.first_reconcile_done.is_set()

    async def _maintain(self, events: DirectoryEvents) -> None:
        everything = events.everything
        for path in () if everything else events.changed:
            everything = not await self._replicas.scan(path) or everything
        if everything:
            await self._reconcile()
        for log_dir in events.watermarks:
            await self._watermarks.wake_waiting(log_dir)

    async def _reconcile(self) -> None:
        await self._replicas.reconcile()
        online = frozenset(self._replicas.online)
        if online - self._online and self._is_settled:
            self._events.watch_anew()
        self._online = online
        for log_dir in online:
            await self._watermarks.wake_waiting(log_dir)
        self._recorder.task_succeeded("reconcile")
        self._tasks.reconciled()
