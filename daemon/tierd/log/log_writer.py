"""LogWriter: one log, many callers; appends that wait together are written together, and synced once if one asks.

::

    append ─┐                              ┌─► answer
    append ─┼─► waiting ─► one job at a time ─┼─► answer       reads run beside it, in threads of their own
    flush  ─┘   (in order)  in a thread    └─► answer

A caller that is cancelled, or whose deadline passes, only drops its answer: a job that has begun goes on to its end, so
that no cancellation can tear a log. A call that has not begun is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar, cast

from tierd.clock import Clock
from tierd.errors import LogError, TierError
from tierd.log.files.disk import Buffer
from tierd.log.log_errors import LogBusyError, LogClosedError, LogTimeoutError
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.log.records.append_origin import AppendOrigin

_T = TypeVar("_T")


class WritableLog(Protocol):
    """Log that a writer can append to and flush, as ``UnifiedLog`` can."""

    def append_many(self, requests: Sequence[AppendRequest], *, now_ms: int) -> Sequence[AppendInfo | LogError]:
        """Append several sets together; a set that is refused does not disturb the others."""

    def flush(self, *, including_active: bool = False, now_ms: int | None = None) -> None:
        """Bring everything to stable storage; ``now_ms`` is the wall clock, for the log."""


_L = TypeVar("_L", bound=WritableLog)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """Limits on the calls that wait for a writer, and on the size of its jobs.

    Attributes:
        waiting_calls: number of calls that may wait; further calls are refused.
        waiting_bytes: bytes that may wait; further bytes are refused, unless nothing waits.
        group_calls: maximum number of appends in one job.
        group_bytes: maximum size of the records in one job; one append alone may be larger.
        deadline_s: time limit for the answer to any call.
    """

    waiting_calls: int = 10_000
    waiting_bytes: int = 256 << 20
    group_calls: int = 512
    group_bytes: int = 16 << 20
    deadline_s: float = 60.0


@dataclass(frozen=True, slots=True)
class WriterStatistics:
    """Counters of the jobs that a writer did, and of the calls that wait for it."""

    jobs: int
    appends: int
    syncs: int
    waiting_calls: int
    waiting_bytes: int


class _Waiting(Generic[_L]):
    """A call that waits for its job, or for its answer."""

    __slots__ = ("answer", "call", "durable", "expires_at_s", "request", "size_bytes")

    def __init__(
        self,
        answer: "asyncio.Future[object]",
        expires_at_s: float,
        *,
        request: AppendRequest | None = None,
        durable: bool = False,
        call: Callable[[_L], object] | None = None,
    ) -> None:
        self.answer = answer
        self.expires_at_s = expires_at_s
        self.request = request
        self.durable = durable
        self.call = call
        self.size_bytes = len(request.records) if request is not None else 0


class LogWriter(Generic[_L]):
    """The writer of one log. For one event loop; ``writers`` and ``readers`` are threads that it may use.

    Attributes:
        log: the log, for the calls that are safe in any thread. Changes go through this writer.
    """

    def __init__(
        self,
        log: _L,
        *,
        name: str,
        writers: Executor,
        readers: Executor,
        clock: Clock,
        limits: WriterLimits | None = None,
    ) -> None:
        self.log: Final = log
        self._name = name
        self._writers = writers
        self._readers = readers
        self._clock = clock
        self._limits = limits or WriterLimits()
        self._waiting: deque[_Waiting[_L]] = deque()
        self._waiting_bytes = 0
        self._running: list[_Waiting[_L]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False
        self._jobs = self._appends = self._syncs = 0

    def statistics(self) -> WriterStatistics:
        """Return the counters of finished jobs and of waiting calls."""
        return WriterStatistics(
            jobs=self._jobs,
            appends=self._appends,
            syncs=self._syncs,
            waiting_calls=len(self._waiting),
            waiting_bytes=self._waiting_bytes,
        )

    async def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        durable: bool = False,
    ) -> AppendInfo:
        """Append records that the log is to number; see ``append``."""
        request = AppendRequest(records, origin=origin, leader_epoch=leader_epoch)
        return await self.append(request, durable=durable)

    async def append_as_follower(self, records: Buffer, *, durable: bool = False) -> AppendInfo:
        """Append records as their leader numbered them; see ``append``."""
        return await self.append(AppendRequest(records, origin=AppendOrigin.REPLICATION), durable=durable)

    async def append(self, request: AppendRequest, *, durable: bool = False) -> AppendInfo:
        """Append one set of records, in the order of the calls.

        The records must not change until the answer. A cancellation leaves the set appended whole, or not at all.

        Args:
            request: the set.
            durable: answer only when the set is on stable storage.

        Raises:
            AppendError: the set was refused; nothing of it was written.
            LogDirOfflineError: the disk failed; the set may be in the log or not.
            LogBusyError: too much waits already; nothing was done.
            LogTimeoutError: no answer in time; the set may be in the log or not.
            LogClosedError: the writer or its log is closed; nothing was done.
        """
        answer = asyncio.get_running_loop().create_future()
        self._enqueue(_Waiting(answer, self._expiry(), request=request, durable=durable))
        return cast("AppendInfo", await answer)

    async def run(self, call: Callable[[_L], _T]) -> _T:
        """Do anything else that changes the log, between the appends before and after it.

        Raises:
            TierError: an error of ``call``.
            LogBusyError, LogTimeoutError, LogClosedError: as for ``append``.
        """
        answer = asyncio.get_running_loop().create_future()
        self._enqueue(_Waiting(answer, self._expiry(), call=call))
        return cast("_T", await answer)

    async def flush(self) -> None:
        """Return when everything appended before is on stable storage; raises the errors of ``run``."""
        await self.run(lambda log: log.flush(including_active=True, now_ms=self._clock.now_ms()))

    async def read(self, call: Callable[[_L], _T]) -> _T:
        """Run a call that only reads the log, at once; it does not wait for the writer.

        Raises:
            TierError: an error of ``call``.
            LogTimeoutError: no answer in time.
        """
        reading = asyncio.get_running_loop().run_in_executor(self._readers, call, self.log)
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                return await reading
        except TimeoutError as error:
            raise self._too_late() from error

    async def close(self) -> None:
        """Take no more calls, and return when those that wait have been done. The log itself stays open.

        A cancellation leaves the writer closed, and its calls being done.

        Raises:
            LogTimeoutError: they were not done in time; the log must not be touched.
        """
        self._is_closed = True
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                await self._idle.wait()
        except TimeoutError as error:
            raise self._too_late() from error

    def _enqueue(self, waiting: _Waiting[_L]) -> None:
        if self._is_closed:
            raise self._closed()
        if self._is_full(waiting.size_bytes):
            self._drop_unwanted()
            if self._is_full(waiting.size_bytes):
                raise LogBusyError(
                    f"{self._name}: {len(self._waiting)} calls with {self._waiting_bytes} bytes wait already",
                    remedy="send less at once, or look at the disk",
                )
        self._waiting.append(waiting)
        self._waiting_bytes += waiting.size_bytes
        if self._alarm is None:
            self._set_alarm(waiting.expires_at_s)
        if self._idle.is_set():
            self._idle.clear()
            if waiting.call is not None:
                self._begin_job()
            else:  # not at once: appends in the same iteration of the event loop share one write
                asyncio.get_running_loop().call_soon(self._begin_job)

    def _is_full(self, more_bytes: int) -> bool:
        return bool(self._waiting) and (
            len(self._waiting) >= self._limits.waiting_calls
            or self._waiting_bytes + more_bytes > self._limits.waiting_bytes
        )

    def _drop_unwanted(self) -> None:
        """Drop the waiting calls whose callers are gone, so that they keep no new calls out while a disk hangs."""
        self._waiting = deque(waiting for waiting in self._waiting if not waiting.answer.done())
        self._waiting_bytes = sum(waiting.size_bytes for waiting in self._waiting)

    def _begin_job(self) -> None:
        self._running = self._take_group()
        if not self._running:
            self._idle.set()
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
            return
        try:
            job = asyncio.get_running_loop().run_in_executor(self._writers, self._run_job, self._running)
        except RuntimeError:  # the threads were released while a job hung
            self._is_closed = True
            self._end_group([self._closed()] * len(self._running))
            return
        self._jobs += 1
        job.add_done_callback(self._end_job)

    def _take_group(self) -> list[_Waiting[_L]]:
        """Remove and return the calls of the next job: the appends that wait next to each other, or one other call."""
        group: list[_Waiting[_L]] = []
        size_bytes = 0
        while self._waiting and len(group) < self._limits.group_calls:
            first = self._waiting[0]
            if not first.answer.done():
                if group and (first.call or size_bytes + first.size_bytes > self._limits.group_bytes):
                    break
                group.append(first)
                size_bytes += first.size_bytes
            self._waiting.popleft()
            self._waiting_bytes -= first.size_bytes
            if group and group[0].call:
                break
        return group

    def _run_job(self, group: list[_Waiting[_L]]) -> Sequence[object]:
        """Carry out the calls in a thread of the writer. Errors for callers are values; an exception is a bug."""
        if (call := group[0].call) is not None:
            try:
                return [call(self.log)]
            except TierError as error:
                return [error]
        requests = [waiting.request for waiting in group if waiting.request is not None]
        answers: list[object] = list(self.log.append_many(requests, now_ms=self._clock.now_ms()))
        if any(
            waiting.durable and isinstance(answer, AppendInfo) for waiting, answer in zip(group, answers, strict=True)
        ):
            self._syncs += 1
            try:
                self.log.flush(including_active=True, now_ms=self._clock.now_ms())
            except LogError as error:
                return [
                    error if waiting.durable and isinstance(answer, AppendInfo) else answer
                    for waiting, answer in zip(group, answers, strict=True)
                ]
        return answers

    def _end_job(self, job: "asyncio.Future[Sequence[object]]") -> None:
        bug = job.exception()
        self._appends += sum(waiting.call is None for waiting in self._running)
        self._end_group([bug] * len(self._running) if bug is not None else job.result())

    def _end_group(self, answers: Sequence[object]) -> None:
        for waiting, answer in zip(self._running, answers, strict=True):
            if waiting.answer.done():  # its caller was cancelled, or has lost patience
                continue
            if isinstance(answer, BaseException):
                waiting.answer.set_exception(answer)
            else:
                waiting.answer.set_result(answer)
        self._begin_job()

    def _expiry(self) -> float:
        return asyncio.get_running_loop().time() + self._limits.deadline_s

    def _set_alarm(self, at_s: float) -> None:
        self._alarm = asyncio.get_running_loop().call_at(at_s, self._expire)

    def _expire(self) -> None:
        """Answer the calls that waited too long. Calls expire in their order, so one alarm serves all."""
        now_s = asyncio.get_running_loop().time()
        self._alarm = None
        for waiting in (*self._running, *self._waiting):
            if waiting.answer.done():
                continue
            if waiting.expires_at_s > now_s:
                self._set_alarm(waiting.expires_at_s)
                return
            waiting.answer.set_exception(self._too_late())

    def _closed(self) -> LogClosedError:
        return LogClosedError(f"{self._name}: the writer is closed")

    def _too_late(self) -> LogTimeoutError:
        return LogTimeoutError(
            f"{self._name}: no answer within {self._limits.deadline_s:g} s",
            remedy="look at the disk; then compare the log's end with what was to be appended",
        )
