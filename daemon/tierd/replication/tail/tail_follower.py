"""TailFollower: all logs of brokers on this host that are pushed, followed by few tasks and few threads.

::

    growth of files, changed names ──► PollQueue of the log dir ──► job in a thread ──► TailedLog ──► listener
    time (polls, checks, retries) ──────────┘     ▲                      │ directory gone
    partitions without a directory ──► PollQueue of the search ◄─────────┘

A log dir has a queue and threads of its own, so that a disk that hangs holds up its own partitions only.
"""

import asyncio
import random as _random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import LogDirOfflineError, TierError
from tierd.log import (
    CheckpointChanged,
    LogDirChanged,
    LogDirEvent,
    LogDirWatcher,
    Overflowed,
    PartitionChanged,
    WatchLimitReached,
)
from tierd.model import TopicIdPartition
from tierd.replication.tail.checkpointed_offsets import CheckpointedOffsets
from tierd.replication.tail.followed_tails import FollowedTails
from tierd.replication.tail.growth_watch import GrowthWatch
from tierd.replication.tail.tail_jobs import changed_directories
from tierd.replication.tail.tail_values import TailSettings
from tierd.replication.tail.tail_worker import JobAnswer, TailWorker, TailWorkers
from tierd.replication.tail.tailed_log import TailedLog

log = structlog.get_logger()

_TICK_S: Final = 0.1
_CARE_PAUSE_S: Final = 0.5
_OFFLINE: Final = Backoff(base_s=1.0)
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TailStatistics:
    """State of tail mode, and what it cost.

    Attributes:
        partitions: that are followed.
        watched: of these, partitions of which the kernel reports growth.
        missing: of these, partitions whose directory is not found.
        polls, taken_bytes, restarts: counts since the start.
        cpu_s: CPU time of the event loop and of the threads for tail mode, without the reads of standbys.
        open_files: files that are kept open.
        oldest_job_s: age of the oldest job; a high age is a disk that does not answer.
        watch_problem: the reason why logs are polled, and the remedy; empty without one.
        log_dir_problems: by log dir.
        broken: number of partitions with a problem.
        problems: of some of them.
    """

    partitions: int
    watched: int
    missing: int
    polls: int
    taken_bytes: int
    restarts: int
    cpu_s: float
    open_files: int
    oldest_job_s: float
    watch_problem: str
    log_dir_problems: dict[Path, str]
    broken: int
    problems: dict[TopicIdPartition, str]


class TailFollower:
    """Follower of the logs in some log dirs. It reads only: it makes, locks, renames and writes no file there."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        settings: TailSettings,
        *,
        clock: Clock,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """Make an idle follower; ``run`` does the work."""
        self._settings = settings
        self._clock = clock
        self._random = random
        self._workers = TailWorkers(log_dirs, settings, clock=clock, random=random)
        self._tails = FollowedTails(tuple(log_dirs), settings, self._workers, clock=clock)
        self._watches = self._tails.watches
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Follow the logs until cancelled."""
        growth = self._watches.open()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                if growth is not None:
                    group.create_task(self._follow_growth(growth), name="growth of logs")
                group.create_task(self._wake_due(), name="checks of logs")
                for log_dir, worker in self._workers.by_log_dir.items():
                    group.create_task(self._follow_names(worker, log_dir), name=f"names in {log_dir}")
                    group.create_task(self._care(worker, log_dir), name=f"checkpoints in {log_dir}")
        finally:
            self._group = None
            self._watches.close()
            self._tails.open_tails.close()
            for worker in self._workers:
                worker.threads.close()

    # ---------------------------------------------------------------- what callers get

    async def follow(self, partition: TopicIdPartition, *, leader_epoch: int = -1) -> TailedLog:
        """Follow a partition from its present log end on, while ``run`` runs. A second call returns the same log.

        ``leader_epoch``: of the present leadership; -1 to take it from the broker's files.

        Raises:
            UnknownPartitionError: no log dir has it; it is not followed.
            TierError: the log cannot be read; it is not followed.
        """
        tail = self._tails.get(partition)
        if tail is None:
            tail = self._tails.add(partition, leader_epoch=leader_epoch)
            self._dispatch_all()
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                followed = await asyncio.shield(tail.begun)
        except TimeoutError as error:
            self.unfollow(partition)
            raise LogDirOfflineError(
                f"{partition}: not read within {self._settings.start_timeout_s:g} s", remedy="check the disk"
            ) from error
        except TierError:
            self.unfollow(partition)
            raise
        followed.announce_leader_epoch(leader_epoch)
        return followed

    def unfollow(self, partition: TopicIdPartition) -> None:
        """Stop following a partition; one that is not followed is no error."""
        self._tails.remove(partition)

    def take_watermark(self, partition: TopicIdPartition, high_watermark: int, log_start_offset: int = -1) -> None:
        """Take note of offsets that the broker has told; those of its checkpoints come by themselves, but late."""
        self._tails.take_watermark(partition, high_watermark, log_start_offset)
        self._dispatch_all()

    def problem_of(self, partition: TopicIdPartition) -> TierError | None:
        """Return the reason why a partition makes no progress; None without one."""
        return self._tails.problem_of(partition)

    def statistics(self) -> TailStatistics:
        """Return the present state."""
        broken, counters = self._tails.broken(), self._tails.counters
        by_log_dir = self._workers.by_log_dir
        return TailStatistics(
            partitions=len(self._tails),
            watched=self._watches.watched,
            missing=len(self._workers.search.queue),
            polls=counters.polls,
            taken_bytes=counters.taken_bytes,
            restarts=counters.restarts,
            cpu_s=counters.loop_cpu_s + sum(worker.cpu_s for worker in self._workers),
            open_files=len(self._tails.open_tails),
            oldest_job_s=max(worker.oldest_job_s for worker in self._workers),
            watch_problem=self._watches.problem,
            log_dir_problems={log_dir: worker.problem for log_dir, worker in by_log_dir.items() if worker.problem},
            broken=len(broken),
            problems={partition: problem.explained for partition, problem in islice(broken.items(), _SHOWN)},
        )

    # ---------------------------------------------------------------- hints

    async def _follow_growth(self, growth: GrowthWatch) -> None:
        while True:
            await growth.wait()
            begun_s = time.thread_time()
            grown = self._watches.grown()
            for partition in grown.partitions:
                self._tails.mark(partition)
            if grown.is_incomplete:
                for worker in self._workers:
                    worker.queue.mark_all()
            self._dispatch_all()
            self._tails.counters.loop_cpu_s += time.thread_time() - begun_s
            await self._clock.sleep(self._settings.interval_s)

    async def _wake_due(self) -> None:
        while True:
            begun_s = time.thread_time()
            for worker in self._workers:
                worker.queue.wake(self._clock.monotonic_s())
            self._dispatch_all()
            self._tails.report_stalls()
            has_unwatched = any(worker.queue.unwatched for worker in self._workers)
            self._tails.counters.loop_cpu_s += time.thread_time() - begun_s
            await self._clock.sleep(self._settings.interval_s if has_unwatched else _TICK_S)

    async def _follow_names(self, worker: TailWorker, log_dir: Path) -> None:
        failures = 0
        while True:
            try:
                async with LogDirWatcher([log_dir]) as watcher:
                    self._watches.use_names(log_dir, watcher)
                    failures = 0
                    self._hear(worker, Overflowed())
                    async for event in watcher.events():
                        self._hear(worker, event)
            except (LogDirOfflineError, OSError) as error:
                failures += 1
                worker.problem = error.explained if isinstance(error, TierError) else str(error)
                log.warning("tail_names_unknown", log_dir=str(log_dir), problem=str(error))
            finally:
                self._watches.use_names(log_dir, None)
            await self._clock.sleep(_OFFLINE.delay_s(failures, random=self._random))

    def _hear(self, worker: TailWorker, event: LogDirEvent) -> None:
        match event:
            case PartitionChanged(path):
                if (partition := self._watches.partition_at(path)) is not None:
                    worker.queue.mark(partition)
            case LogDirChanged():
                worker.hint(names=True)
            case CheckpointChanged():
                worker.hint(offsets=True)
            case WatchLimitReached(path):
                self._watches.limit_reached(path)
            case Overflowed():
                worker.queue.mark_all()
                worker.hint(names=True, offsets=True)
        self._dispatch(worker)

    async def _care(self, worker: TailWorker, log_dir: Path) -> None:
        """Look for changed directories and new checkpoints of a log dir after each hint."""
        while True:
            await worker.has_hint.wait()
            worker.has_hint.clear()
            try:
                await self._take_hints(worker, log_dir)
                worker.problem = ""
            except TierError as error:
                if not worker.problem:
                    log.warning("tail_log_dir_unreadable", log_dir=str(log_dir), problem=str(error))
                worker.problem = error.explained
            await self._clock.sleep(_CARE_PAUSE_S)

    async def _take_hints(self, worker: TailWorker, log_dir: Path) -> None:
        if worker.has_new_names:
            worker.has_new_names = False
            known = self._watches.directories(log_dir)
            for partition in await worker.threads.run(lambda: changed_directories(known)):
                worker.queue.mark(partition)
            self._workers.search.queue.mark_all()
        if worker.has_new_offsets:
            worker.has_new_offsets = False
            changes = await worker.threads.run(worker.checkpoints.changes)
            for name, offsets in changes.items():
                self._take_checkpointed(worker, log_dir / str(name), offsets)
        self._dispatch_all()

    def _take_checkpointed(self, worker: TailWorker, path: Path, offsets: CheckpointedOffsets) -> None:
        partition = self._watches.partition_at(path)
        tail = self._tails.get(partition) if partition is not None else None
        if partition is None or tail is None or tail.found is None:
            return
        if offsets.written_ns <= tail.found.created_ns:
            worker.checkpoints.doubt(partition.topic_partition)
        else:
            self._tails.take_watermark(partition, offsets.high_watermark, offsets.log_start_offset)

    # ---------------------------------------------------------------- jobs

    def _dispatch_all(self) -> None:
        for worker in self._workers:
            self._dispatch(worker)

    def _dispatch(self, worker: TailWorker) -> None:
        if self._group is not None:
            worker.dispatch(self._group, self._tails.request, self._apply)

    def _apply(self, answers: list[JobAnswer]) -> None:
        self._tails.apply(answers)
        self._dispatch_all()
