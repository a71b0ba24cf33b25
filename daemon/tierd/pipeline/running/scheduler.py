"""PipelineScheduler: one run at a time, by the timetable or on request, each within its limits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import PipelineBusyError, StateDirError, TierError
from tierd.model import TopicPartition, random_id, uuid_to_text
from tierd.pipeline.running.run_history import RunHistory, RunOutcome, RunReport
from tierd.pipeline.running.run_progress import RunProgress, RunTotals
from tierd.schedule import Schedule
from tierd.tasks import end_tasks, run_to_end
from tierd.telemetry import PipelineUse

log = structlog.get_logger()

_LONGEST_SLEEP_S: Final = 60.0  # the wall clock may be set meanwhile
_RETRY: Final = Backoff(base_s=60.0, cap_s=900.0)

CarryOutRun = Callable[[RunProgress, Sequence[TopicPartition] | None], Awaitable[None]]
"""Function that does one run, from planning to the last commit, and fills the progress.

Partitions None means all partitions that this broker leads.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Limits of one run.

    Attributes:
        timeout_s: time after which a run is cancelled.
        retries: further attempts of a scheduled run that failed.
    """

    timeout_s: float
    retries: int


class PipelineScheduler:
    """Owner of the run that is under way. Lives on the event loop."""

    def __init__(
        self,
        work: CarryOutRun,
        *,
        timetable: Schedule,
        limits: RunLimits,
        history: RunHistory,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        """Prepare to run ``work``; ``random`` returns a number in [0, 1)."""
        self._work = work
        self._timetable = timetable
        self._limits = limits
        self._history = history
        self._totals = RunTotals()
        self._clock = clock
        self._random = random
        self.current: RunProgress | None = None
        self.last: RunReport | None = None
        self.next_begin_ms: int | None = None

    async def run(self) -> None:
        """Run by the timetable until cancelled; a scheduled run that is under way is cancelled too."""
        while True:
            await self._until_due()
            self.next_begin_ms = self._after(self._clock.now_ms())  # what is due by now is not the next any more
            if self.current is not None:
                log.warning("run_left_out", reason="a requested run is under way")
                continue
            try:
                await self._run_with_retries()
            except StateDirError as error:  # the run is over, and is missing in the history alone
                log.warning("run_not_remembered", problem=str(error), remedy=error.remedy)

    async def run_now(self, names: Sequence[TopicPartition] | None, *, trigger: str = "command") -> RunReport:
        """Run once on request, whatever the timetable says.

        Raises:
            PipelineBusyError: a run is under way.
            StateDirError: the run is over, but the history cannot be written.
        """
        return await self._attempt(trigger, 1, names, until_ms=None)

    def statistics(self) -> PipelineUse:
        """Return the run under way and the totals since the start, as metrics show them."""
        return self._totals.use(self.current, self.next_begin_ms)

    async def _run_with_retries(self) -> None:
        for attempt in range(1, self._limits.retries + 2):
            record = await self._attempt("schedule", attempt, None, until_ms=self._next_pause_ms())
            if record.outcome is not RunOutcome.FAILED or attempt > self._limits.retries:
                return
            delay_s = _RETRY.delay_s(attempt, random=self._random)
            log.warning("run_will_be_tried_again", run=record.run_id, attempt=attempt, after_s=round(delay_s))
            await self._clock.sleep(delay_s)
            await self._until_no_pause()

    async def _attempt(
        self, trigger: str, attempt: int, names: Sequence[TopicPartition] | None, *, until_ms: int | None
    ) -> RunReport:
        if self.current is not None:
            raise PipelineBusyError(
                f"run {self.current.run_id} is under way since {self.current.began_ms} ms: {self.current.stage}",
                remedy="wait for it: tierd status shows how far it is",
            )
        run_id = uuid_to_text(random_id())
        progress = RunProgress(run_id=run_id, trigger=trigger, attempt=attempt, began_ms=self._clock.now_ms())
        self.current = progress
        log.info("run_begun", run=run_id, trigger=trigger, attempt=attempt)
        outcome = RunOutcome.FAILED
        try:
            outcome = await self._bounded(progress, names, until_ms)
        except asyncio.CancelledError:
            outcome = RunOutcome.CANCELLED
            raise
        finally:
            record = progress.ended(outcome, self._clock.now_ms())
            try:  # a caller that waits for the end finds it in the history, and the next run is added behind it
                await run_to_end(self._remember(record), name="remember a run")
            finally:
                self.current, self.last = None, record
        return record

    async def _bounded(
        self, progress: RunProgress, names: Sequence[TopicPartition] | None, until_ms: int | None
    ) -> RunOutcome:
        """Work until the run is done, its time is up or a pause begins; return the outcome."""
        limit_s, outcome, why = (
            self._limits.timeout_s,
            RunOutcome.TIMED_OUT,
            f"not done in {self._limits.timeout_s:g} s",
        )
        if until_ms is not None and (left_s := (until_ms - self._clock.now_ms()) / 1000) < limit_s:
            limit_s, outcome, why = left_s, RunOutcome.CANCELLED, "a pause window begins"
        working = asyncio.ensure_future(self._work(progress, names))
        ringing = asyncio.create_task(self._clock.sleep(limit_s), name="end of the run's time")
        try:
            await asyncio.wait({working, ringing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return _outcome(working, progress)
            progress.add_problem(f"ended while {progress.stage}: {why}")
            return outcome
        finally:
            await end_tasks([working, ringing])

    async def _remember(self, record: RunReport) -> None:
        tally, log_run = record.tally, log.warning if record.outcome.is_problem else log.info
        log_run(
            "run_ended",
            run=record.run_id,
            outcome=record.outcome.value,
            partitions=tally.partitions,
            replaced=tally.groups_replaced,
            failed=tally.groups_failed,
            bytes_before=tally.bytes_before,
            bytes_after=tally.bytes_after,
            problems=list(record.problems),
            log_file=record.log_file,
        )
        self._totals.add(record)
        await asyncio.to_thread(self._history.append, record)

    def _after(self, now_ms: int) -> int:
        return self._timetable.next_begin_ms(now_ms, random=self._random)

    def _next_pause_ms(self) -> int | None:
        return self._timetable.next_pause_ms(self._clock.now_ms())

    async def _until_due(self) -> None:
        """Sleep until a run is due; the due time is computed again if the wall clock is set back meanwhile."""
        checked_ms = self._clock.now_ms()
        self.next_begin_ms = begin_ms = self._after(checked_ms)
        while (now_ms := self._clock.now_ms()) < begin_ms:
            if now_ms < checked_ms:
                self.next_begin_ms = begin_ms = self._after(now_ms)
            checked_ms = now_ms
            await self._sleep_towards(begin_ms)

    async def _until_no_pause(self) -> None:
        while (until_ms := self._timetable.paused_until_ms(self._clock.now_ms())) is not None:
            await self._sleep_towards(until_ms)

    async def _sleep_towards(self, moment_ms: int) -> None:
        """Sleep towards a moment, but not for long, so that the caller reads the wall clock again."""
        left_s = (moment_ms - self._clock.now_ms()) / 1000
        await self._clock.sleep(min(max(left_s, 0.0), _LONGEST_SLEEP_S))


def _outcome(working: "asyncio.Future[None]", progress: RunProgress) -> RunOutcome:
    """Return the outcome of a run that ended by itself; an error that is not tierd's is raised."""
    try:
        working.result()
    except TierError as error:
        progress.add_problem(error.explained)
        return RunOutcome.PARTLY if progress.tally.groups_replaced else RunOutcome.FAILED
    return progress.outcome()
