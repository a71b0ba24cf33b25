"""TailWorker: queue, threads and jobs of one log dir, or of the search for directories."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tierd.clock import Clock
from tierd.model import TopicIdPartition
from tierd.replication.tail.checkpointed_offsets import OffsetCheckpoints
from tierd.replication.tail.poll_queue import PollQueue
from tierd.replication.tail.tail_jobs import JobResults, TailRequest, TailResult, run_job
from tierd.replication.tail.tail_reads import LogDirThreads
from tierd.replication.tail.tail_values import TailPoll, TailSettings

_PARTITIONS_PER_JOB: Final = 256


class JobAnswer(NamedTuple):
    """Result of one request of a job."""

    partition: TopicIdPartition
    request: TailRequest
    result: TailResult


class TailWorker:
    """At most ``settings.readers`` jobs run at a time, each in a thread of its own."""

    def __init__(
        self, log_dir: Path | None, settings: TailSettings, *, clock: Clock, random: Callable[[], float]
    ) -> None:
        """Make an idle worker; ``log_dir`` is None for the search."""
        self.log_dir = log_dir
        self.queue: PollQueue[TopicIdPartition] = PollQueue(
            interval_s=settings.interval_s, check_interval_s=settings.check_interval_s, random=random
        )
        self.threads = LogDirThreads(str(log_dir or "the log dirs"), readers=settings.readers)
        self.checkpoints = OffsetCheckpoints(log_dir or Path())
        self.has_hint = asyncio.Event()
        self.has_new_names = self.has_new_offsets = False
        self.problem = ""
        self.cpu_s = 0.0
        self._settings = settings
        self._clock = clock
        self._begun_s: dict[object, float] = {}

    def hint(self, *, names: bool = False, offsets: bool = False) -> None:
        """Take note that directories or checkpoints of the log dir changed."""
        self.has_new_names = self.has_new_names or names
        self.has_new_offsets = self.has_new_offsets or offsets
        self.has_hint.set()

    @property
    def oldest_job_s(self) -> float:
        """Return the age of the oldest job; a high age is a disk that does not answer."""
        return self._clock.monotonic_s() - min(self._begun_s.values()) if self._begun_s else 0.0

    def dispatch(
        self,
        group: asyncio.TaskGroup,
        request: Callable[[TopicIdPartition], TailRequest],
        apply: Callable[[list[JobAnswer]], None],
    ) -> None:
        """Begin jobs for the partitions that wait, as far as threads are free; ``apply`` gets their results."""
        while self.queue.waiting and len(self._begun_s) < self._settings.readers:
            keys = self.queue.take(_PARTITIONS_PER_JOB)
            job = object()
            self._begun_s[job] = self._clock.monotonic_s()
            requests = [(key, request(key)) for key in keys]
            work = self._run(job, requests, apply)
            group.create_task(work, name=f"tail of {self.log_dir or 'unknown directories'}")

    async def _run(
        self,
        job: object,
        requests: list[tuple[TopicIdPartition, TailRequest]],
        apply: Callable[[list[JobAnswer]], None],
    ) -> None:
        future = self.threads.begin(
            partial(run_job, [request for _, request in requests], max_bytes=self._settings.job_bytes)
        )
        try:
            done = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close_descriptors)
            raise
        finally:
            del self._begun_s[job]
        self.cpu_s += done.cpu_s
        apply([JobAnswer(*asked, result) for asked, result in zip(requests, done.results, strict=True)])


def _close_descriptors(future: "Future[JobResults]") -> None:
    """Close what an abandoned job has opened."""
    if not future.cancelled() and future.exception() is None:
        for result in future.result().results:
            close_descriptor(result)


def close_descriptor(result: TailResult) -> None:
    """Close the descriptor of a result that no log takes."""
    if isinstance(result, TailPoll) and result.descriptor >= 0:
        os.close(result.descriptor)


class TailWorkers:
    """One worker for each log dir, and one for the search."""

    def __init__(
        self, log_dirs: Sequence[Path], settings: TailSettings, *, clock: Clock, random: Callable[[], float]
    ) -> None:
        self.search = TailWorker(None, settings, clock=clock, random=random)
        self.by_log_dir = {each: TailWorker(each, settings, clock=clock, random=random) for each in log_dirs}

    def __iter__(self) -> Iterator[TailWorker]:
        yield self.search
        yield from self.by_log_dir.values()

    def of(self, log_dir: Path) -> TailWorker:
        """Return the worker of a log dir."""
        return self.by_log_dir[log_dir]
