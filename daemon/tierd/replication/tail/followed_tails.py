"""FollowedTails: the partitions that tail mode follows, and what follows from the results of their jobs.

::

    search for the directory ──found──► first poll ──► polls, again and again
              ▲                                             │
              └──────────────── directory gone ─────────────┘
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from tierd.clock import Clock
from tierd.errors import CorruptRecordError, TierError, UnknownPartitionError
from tierd.model import TopicIdPartition
from tierd.replication.tail.poll_queue import PollResult
from tierd.replication.tail.tail_jobs import (
    BeginRequest,
    BegunTail,
    FoundDirectory,
    SeekRequest,
    TailRequest,
    TailResult,
)
from tierd.replication.tail.tail_poll import TailPollRequest
from tierd.replication.tail.tail_reads import TailScans
from tierd.replication.tail.tail_records import OpenTails
from tierd.replication.tail.tail_values import TailPoll, TailSettings
from tierd.replication.tail.tail_watches import TailWatches
from tierd.replication.tail.tail_worker import JobAnswer, TailWorker, TailWorkers, close_descriptor
from tierd.replication.tail.tailed_log import TailedLog

log = structlog.get_logger()

_STALLED_S: Final = 10.0  # a broker writes a batch in one go


class StalledPlace(NamedTuple):
    """Place at which a file goes on without a whole and sound batch, and the monotonic time since which it does."""

    next_offset: int
    path: Path
    position: int
    since_s: float


@dataclass(slots=True)
class FollowedTail:
    """One partition that is followed.

    Attributes:
        worker: of the log dir, or of the search.
        begun: the log, after the first poll.
        watermark: offsets that came before the first poll.
        stalled: None while the file ends with whole batches.
        request: that a job is answering.
    """

    worker: TailWorker
    begun: "asyncio.Future[TailedLog]"
    leader_epoch: int
    found: FoundDirectory | None = None
    log: TailedLog | None = None
    watermark: tuple[int, int] = (-1, -1)
    problem: TierError | None = None
    stalled: StalledPlace | None = None
    request: TailRequest | None = None


@dataclass(slots=True)
class TailCounters:
    """Counts since the start."""

    polls: int = 0
    taken_bytes: int = 0
    restarts: int = 0
    loop_cpu_s: float = 0.0


class FollowedTails:
    """The followed partitions by identity. On the event loop."""

    def __init__(
        self, log_dirs: tuple[Path, ...], settings: TailSettings, workers: TailWorkers, *, clock: Clock
    ) -> None:
        """Begin without partitions.

        Args:
            log_dirs: places of the search.
            settings: limits.
            workers: by log dir, and the one for the search.
            clock: time.
        """
        self.counters = TailCounters()
        self.watches = TailWatches(monotonic_s=clock.monotonic_s)
        self.open_tails = OpenTails(settings.open_files)
        self._log_dirs = log_dirs
        self._settings = settings
        self._workers = workers
        self._clock = clock
        self._scans = TailScans()
        self._tails: dict[TopicIdPartition, FollowedTail] = {}
        self._unsaid: set[TopicIdPartition] = set()  # stalled, and not in the log yet

    def __len__(self) -> int:
        return len(self._tails)

    def get(self, partition: TopicIdPartition) -> FollowedTail | None:
        """Return a followed partition."""
        return self._tails.get(partition)

    def add(self, partition: TopicIdPartition, *, leader_epoch: int) -> FollowedTail:
        """Follow a partition, which is searched for first."""
        begun: asyncio.Future[TailedLog] = asyncio.get_running_loop().create_future()
        tail = self._tails[partition] = FollowedTail(self._workers.search, begun, leader_epoch)
        tail.worker.queue.add(partition)
        return tail

    def remove(self, partition: TopicIdPartition) -> None:
        """Stop following a partition; one that is not followed is no error."""
        tail = self._tails.pop(partition, None)
        if tail is None:
            return
        self._unsaid.discard(partition)
        tail.worker.queue.remove(partition)
        self.watches.forget(partition)
        self.open_tails.drop(partition)
        if not tail.begun.done():
            tail.begun.set_exception(UnknownPartitionError(f"{partition}: not followed any more"))
            tail.begun.exception()  # a caller may wait, or not

    def mark(self, partition: TopicIdPartition) -> None:
        """Let a partition be polled; one that is not followed is no error."""
        if (tail := self._tails.get(partition)) is not None:
            tail.worker.queue.mark(partition)

    def take_watermark(self, partition: TopicIdPartition, high_watermark: int, log_start_offset: int) -> None:
        """Take note of offsets of the broker; a partition that is not followed is no error."""
        tail = self._tails.get(partition)
        if tail is None:
            return
        if tail.log is None:
            tail.watermark = (high_watermark, log_start_offset)
        elif tail.log.raise_watermark(high_watermark, log_start_offset):
            tail.worker.queue.mark(partition)

    def broken(self) -> dict[TopicIdPartition, TierError]:
        """Return the partitions that make no progress, each with the reason."""
        found = ((partition, self.problem_of(partition)) for partition in self._tails)
        return {partition: problem for partition, problem in found if problem is not None}

    def problem_of(self, partition: TopicIdPartition) -> TierError | None:
        """Return why a partition makes no progress; None without a reason, and for one that is not followed."""
        tail = self._tails.get(partition)
        if tail is None or tail.problem is not None or (stalled := tail.stalled) is None:
            return None if tail is None else tail.problem
        seconds = self._clock.monotonic_s() - stalled.since_s
        if seconds < _STALLED_S:
            return None
        return CorruptRecordError(
            str(stalled.path),
            stalled.position,
            f"no whole and sound batch for {seconds:.0f} s, so that no standby gets what is behind it,",
        )

    def report_stalls(self) -> None:
        """Log each partition once that makes no progress although no job of it has failed."""
        for partition in list(self._unsaid):
            if (problem := self.problem_of(partition)) is not None:
                self._unsaid.discard(partition)
                _report(partition, problem)

    # ---------------------------------------------------------------- jobs

    def request(self, partition: TopicIdPartition) -> TailRequest:
        """Return the next request about a partition."""
        tail = self._tails[partition]
        tail.request = self._next_request(partition, tail)
        return tail.request

    def _next_request(self, partition: TopicIdPartition, tail: FollowedTail) -> TailRequest:
        if tail.found is None:
            return SeekRequest(partition, self._log_dirs)
        if tail.log is None:
            return BeginRequest(tail.found, tail.worker.checkpoints, self._settings.limit)
        return TailPollRequest(
            tail.log.position,
            tail.log.limit_offset,
            max_bytes=self._settings.poll_bytes,
            wants_descriptor=tail.log.wants_descriptor,
        )

    def apply(self, answers: list[JobAnswer]) -> None:
        """Act on the results of a job."""
        begun_s = time.thread_time()
        for answer in answers:
            tail = self._tails.get(answer.partition)
            if tail is None or tail.request is not answer.request:  # unfollowed meanwhile, and perhaps followed again
                close_descriptor(answer.result)
            else:
                tail.request = None
                self._apply(answer.partition, tail, answer.result)
        self.counters.loop_cpu_s += time.thread_time() - begun_s

    def _apply(self, partition: TopicIdPartition, tail: FollowedTail, result: TailResult) -> None:
        match result:
            case None:
                self._done(partition, tail, PollResult.MORE)
            case FoundDirectory():
                self._found(partition, tail, result)
            case BegunTail():
                self._begin(partition, tail, result)
            case TailPoll():
                self._polled(partition, tail, result)
            case _:
                self._failed(partition, tail, result)

    def _found(self, partition: TopicIdPartition, tail: FollowedTail, found: FoundDirectory) -> None:
        tail.found, tail.problem = found, None
        if tail.log is not None:
            tail.log.move(found.directory)
        self._move(partition, tail, self._workers.of(found.directory.path.parent))

    def _begin(self, partition: TopicIdPartition, tail: FollowedTail, begun: BegunTail) -> None:
        tail.log = TailedLog(
            partition,
            begun.position,
            limit=self._settings.limit,
            threads=lambda: tail.worker.threads,
            scans=self._scans,
            open_tails=self.open_tails,
        )
        tail.log.raise_watermark(begun.offsets.high_watermark, begun.offsets.log_start_offset)
        tail.log.raise_watermark(*tail.watermark)
        tail.log.announce_leader_epoch(tail.leader_epoch)
        self.watches.cover(partition, begun.position)
        if not tail.begun.done():
            tail.begun.set_result(tail.log)
        self._done(partition, tail, PollResult.MORE)  # for what came before the watches

    def _polled(self, partition: TopicIdPartition, tail: FollowedTail, done: TailPoll) -> None:
        assert tail.log is not None  # a poll has the position of a log
        self.counters.polls += 1
        self.counters.taken_bytes += sum(len(append.records) for append in done.appends)
        if done.is_restarted:
            self.counters.restarts += 1
            log.info("tail_restarted", partition=str(partition), log_end_offset=done.position.next_offset)
        tail.log.apply(done)
        if done.is_gone:
            tail.found = None
            self.watches.forget(partition)
            self._move(partition, tail, self._workers.search)
            return
        self._note_stall(partition, tail, done)
        is_new = self.watches.cover(partition, done.position)
        if done.problem is not None and done.is_settled:
            self._failed(partition, tail, done.problem)
            return
        tail.problem = done.problem
        if not done.is_settled:
            self._done(partition, tail, PollResult.UNSETTLED)
        elif done.has_more or is_new:
            self._done(partition, tail, PollResult.MORE)
        else:
            self._done(partition, tail, PollResult.GROWN if done.appends else PollResult.IDLE)

    def _note_stall(self, partition: TopicIdPartition, tail: FollowedTail, done: TailPoll) -> None:
        at, before = done.position, tail.stalled
        if before is not None and (before.next_offset != at.next_offset or done.unread_bytes == 0):
            tail.stalled = None
            self._unsaid.discard(partition)
        if tail.stalled is None and done.unread_bytes:
            tail.stalled = StalledPlace(at.next_offset, at.log, at.position, self._clock.monotonic_s())
            self._unsaid.add(partition)

    def _failed(self, partition: TopicIdPartition, tail: FollowedTail, problem: TierError) -> None:
        if tail.problem is None or str(tail.problem) != str(problem):
            _report(partition, problem)
        tail.problem = problem
        if not tail.begun.done():
            tail.begun.set_exception(problem)
        self._done(partition, tail, PollResult.FAILED)

    def _done(self, partition: TopicIdPartition, tail: FollowedTail, result: PollResult) -> None:
        tail.worker.queue.done(
            partition, result, now_s=self._clock.monotonic_s(), is_watched=self.watches.is_watched(partition)
        )

    def _move(self, partition: TopicIdPartition, tail: FollowedTail, worker: TailWorker) -> None:
        tail.worker.queue.remove(partition)
        tail.worker = worker
        worker.queue.add(partition)


def _report(partition: TopicIdPartition, problem: TierError) -> None:
    log.warning("tail_failed", partition=str(partition), problem=str(problem), remedy=problem.remedy)
