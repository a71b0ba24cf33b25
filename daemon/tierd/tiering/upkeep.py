"""Upkeep: what keeps replicas in line with the disk and the store with what is alive. Events wake it, and one timer."""

from collections.abc import Callable
from pathlib import Path

import structlog

from tierd.clock import Clock
from tierd.config import CopySettings
from tierd.errors import TierError
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.local.news import LogDirNews, News
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.sweep import UploadSweep
from tierd.tiering.replicas import Replicas

log = structlog.get_logger()

_JITTER = 0.2


class Upkeep:
    """The periodic and the event-driven looks of one manager."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        news: LogDirNews,
        log_offsets: LogOffsets,
        recorder: TieringRecorder,
        clock: Clock,
        settings: CopySettings,
        random: Callable[[], float],
        on_reconciled: Callable[[], None],
        is_settled: Callable[[], bool],
    ) -> None:
        """``on_reconciled`` is told of every complete look; ``is_settled`` says whether there was one."""
        self._replicas = replicas
        self._news = news
        self._log_offsets = log_offsets
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._random = random
        self._on_reconciled = on_reconciled
        self._is_settled = is_settled
        self._online: frozenset[Path] = frozenset()

    async def maintain(self) -> None:
        """Look at what changed, whenever something did, until cancelled."""
        while True:
            await self._maintain(await self._news.next(settled=self._is_settled()))

    async def ask_regularly(self) -> None:
        """Have everything looked at now and then, sooner while something cannot be watched, until cancelled."""
        while True:
            broken = self._news.is_incomplete or self._replicas.failed() or any(r.problem for r in self._replicas.all())
            interval_s = self._settings.interval_s if broken else self._settings.reconcile_interval_s
            await self._clock.sleep(interval_s * (1 - _JITTER + 2 * _JITTER * self._random()))
            self._news.tell(everything=True)

    async def sweep_uploads(self, sweep: UploadSweep) -> None:
        """Discard once what dead processes left unfinished in the store; return when there is nothing to judge."""
        while True:
            led = [r.local.partition for r in self._replicas.all() if r.tasks.copy and r.tasks.copy.loaded.is_set()]
            try:
                if not await sweep.run_once(led):
                    return
            except TierError as error:
                log.warning("upload_sweep_failed", problem=str(error), remedy=error.remedy)
                await self._clock.sleep(self._settings.interval_s)
            else:
                await self._clock.sleep(self._settings.dangling_grace_s)

    async def _maintain(self, news: News) -> None:
        everything = news.everything
        for path in () if everything else news.changed:
            everything = not await self._replicas.look(path) or everything
        if everything:
            await self._reconcile()
        for log_dir in news.watermarks:
            await self._wake_waiting(log_dir)

    async def _reconcile(self) -> None:
        await self._replicas.reconcile()
        online = frozenset(self._replicas.online)
        if online - self._online and self._is_settled():
            self._news.watch_anew()
        self._online = online
        for log_dir in online:
            await self._wake_waiting(log_dir)
        self._recorder.task_succeeded("reconcile")
        self._on_reconciled()

    async def _wake_waiting(self, log_dir: Path) -> None:
        """Wake the tasks of a log dir whose queued segments a new high watermark lets go. Reads nothing for others."""
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
