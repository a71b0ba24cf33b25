"""Scheduled runs: one at a time, within their limits, retried, and recorded in the history with any outcome."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.left_tasks import nothing_left
from tests.fakes.manual_clock import ManualClock
from tests.pipeline.running.told_run import ToldRun
from tierd.errors import PipelineBusyError, PipelineError
from tierd.model import TopicPartition
from tierd.pipeline.committing import RunTally
from tierd.pipeline.running.run_history import RunHistory, RunOutcome, RunReport
from tierd.pipeline.running.run_progress import RunProgress
from tierd.pipeline.running.scheduler import PipelineScheduler, RunLimits
from tierd.schedule import Schedule
from tierd.testing import cancel_at

MIDNIGHT_MS = round(datetime(2026, 7, 1, tzinfo=UTC).timestamp() * 1000)
HOUR_S = 3600.0


class Lab:
    def __init__(self, folder: Path, *, schedule: str = "0 3 * * *", pauses: Sequence[str] = ()) -> None:
        self.clock = ManualClock(now_ms=MIDNIGHT_MS)
        self.job = ToldRun()
        self.history = RunHistory(folder)
        self.scheduler = PipelineScheduler(
            self.job,
            timetable=Schedule(schedule, pause_windows=pauses),
            limits=RunLimits(timeout_s=2 * HOUR_S, retries=1),
            history=self.history,
            clock=self.clock,
            random=lambda: 0.5,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.scheduler.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def pass_time(self, seconds: float) -> None:
        """Advance the clock in steps as short as those of the scheduler, so that it can check the clock."""
        end_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < end_s:
            await eventually(lambda: self.clock.sleeping > 0, what="a sleeping task")
            self.clock.advance(min(60.0, end_s - self.clock.monotonic_s()))
            for _ in range(10):
                await asyncio.sleep(0)

    async def ended(self, count: int) -> None:
        await eventually(lambda: len(self.history.read()) == count, what=f"{count} runs to end")

    @property
    def outcomes(self) -> list[RunOutcome]:
        return [record.outcome for record in self.history.read()]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


async def test_run_begins_at_its_scheduled_time_and_not_before(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(2.9 * HOUR_S)
        assert lab.job.begun == []
        assert lab.scheduler.next_begin_ms == MIDNIGHT_MS + 3 * 3_600_000
        await lab.pass_time(0.2 * HOUR_S)
        assert lab.job.begun == [None]
        lab.job.ends.put_nowait(None)
        await lab.ended(1)
    assert lab.outcomes == [RunOutcome.SUCCEEDED]
    assert lab.scheduler.last == lab.history.read()[0]
    use = lab.scheduler.statistics()
    assert (use.running, use.runs, use.groups["replaced"]) == (False, {"succeeded": 1}, 1)
    assert lab.scheduler.current is None


async def test_progress_of_a_run_is_visible(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(3.1 * HOUR_S)
        current = lab.scheduler.current
        assert current is not None
        assert (current.trigger, current.stage, current.done, current.total) == ("schedule", "rewriting", 1, 2)
        use = lab.scheduler.statistics()
        assert (use.running, use.progress) == (True, 0.5)


async def test_second_run_is_refused_while_another_runs(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(3.1 * HOUR_S)
        with pytest.raises(PipelineBusyError, match="rewriting"):
            await lab.scheduler.run_now(None)
    assert lab.job.begun == [None]


async def test_scheduled_run_is_skipped_while_a_requested_run_is_active(lab: Lab) -> None:
    lab.clock.advance(HOUR_S * 1.5)
    asked = asyncio.create_task(lab.scheduler.run_now([TopicPartition("orders", 0)]))
    await eventually(lambda: bool(lab.job.begun), what="the run")
    async with lab.running():
        await lab.pass_time(1.6 * HOUR_S)
        assert len(lab.job.begun) == 1
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


async def test_failed_run_is_retried_after_a_pause_and_then_abandoned(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(3.1 * HOUR_S)
        lab.job.ends.put_nowait(PipelineError("no memory", remedy="give it some"))
        await lab.ended(1)
        assert len(lab.job.begun) == 1
        await lab.pass_time(120)
        lab.job.ends.put_nowait(PipelineError("no memory", remedy="give it some"))
        await lab.ended(2)
        await lab.pass_time(HOUR_S)
    assert [record.attempt for record in lab.history.read()] == [1, 2]
    assert lab.outcomes == [RunOutcome.FAILED, RunOutcome.FAILED]
    assert lab.history.read()[0].problems == ("no memory; give it some",)


async def test_run_that_exceeds_its_time_limit_is_ended(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(3.1 * HOUR_S)
        await lab.pass_time(2 * HOUR_S)
        await lab.ended(1)
    assert lab.outcomes == [RunOutcome.TIMED_OUT]
    assert lab.history.read()[0].problems == ("ended while rewriting: not done in 7200 s",)


async def test_pause_ends_a_scheduled_run_and_prevents_the_next_one(tmp_path: Path) -> None:
    lab = Lab(tmp_path, schedule="0 * * * *", pauses=["01:30-04:30"])
    async with lab.running():
        await lab.pass_time(1.2 * HOUR_S)
        await lab.pass_time(0.4 * HOUR_S)
        await lab.ended(1)
        await lab.pass_time(2.5 * HOUR_S)
        assert len(lab.job.begun) == 1
        await lab.pass_time(0.5 * HOUR_S)
        assert len(lab.job.begun) == 2
    assert lab.outcomes[0] is RunOutcome.CANCELLED
    assert "a pause window begins" in lab.history.read()[0].problems[0]


async def test_run_that_cannot_be_recorded_does_not_block_later_runs(tmp_path: Path) -> None:
    """The disk of the state directory may be full, for example."""
    lab = Lab(tmp_path / "state", schedule="0 * * * *")
    async with lab.running():
        for hour in range(3):
            await lab.pass_time(HOUR_S)
            assert len(lab.job.begun) == hour + 1
            lab.job.ends.put_nowait(None)
            await eventually(lambda: lab.scheduler.current is None, what="the end of the run")
            if hour == 1:
                (tmp_path / "state").mkdir()
        await lab.ended(1)
    assert lab.scheduler.statistics().runs == {"succeeded": 3}


async def test_clock_that_is_set_back_does_not_delay_the_next_run(lab: Lab) -> None:
    """The clock of a host may begin years ahead until its first synchronization."""
    lab.clock.step_wall_clock(10 * 365 * 24 * 3_600_000)
    async with lab.running():
        await lab.pass_time(120)
        lab.clock.step_wall_clock(-10 * 365 * 24 * 3_600_000)
        await lab.pass_time(3.1 * HOUR_S)
        assert lab.job.begun == [None]
        assert lab.scheduler.next_begin_ms == MIDNIGHT_MS + 27 * 3_600_000


async def test_a_clock_that_is_set_back_does_not_prolong_a_pause(tmp_path: Path) -> None:
    lab = Lab(tmp_path, schedule="0 * * * *", pauses=["01:01-04:30"])
    async with lab.running():
        await lab.pass_time(1.005 * HOUR_S)
        lab.job.ends.put_nowait(PipelineError("no memory", remedy="give it some"))
        await lab.ended(1)
        await lab.pass_time(300)  # a retry would be due now
        lab.clock.step_wall_clock(-3_600_000)
        await lab.pass_time(120)
        assert len(lab.job.begun) == 2


async def test_run_that_a_shutdown_ends_is_recorded(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(3.1 * HOUR_S)
    await lab.ended(1)
    assert lab.outcomes == [RunOutcome.CANCELLED]


async def test_bug_ends_the_scheduler_and_its_run_is_recorded_as_failed(lab: Lab) -> None:
    asked = asyncio.create_task(lab.scheduler.run_now(None))
    lab.job.ends.put_nowait(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await asked
    assert lab.outcomes == [RunOutcome.FAILED]


def test_outcome_distinguishes_a_partly_failed_run_from_an_idle_one() -> None:
    progress = RunProgress(run_id="r", trigger="command", attempt=1, began_ms=0)
    assert progress.outcome() is RunOutcome.NOTHING_DUE
    progress.tally = RunTally(partitions=2)
    assert progress.outcome() is RunOutcome.SUCCEEDED
    progress.add_problem("orders-0: damaged")
    assert progress.outcome() is RunOutcome.FAILED
    progress.tally += RunTally(groups_replaced=1)
    assert progress.outcome() is RunOutcome.PARTLY


async def test_run_whose_end_is_cancelled_again_has_ended_and_is_recorded(tmp_path: Path) -> None:
    suspension = 1

    async def work() -> None:
        folder = tmp_path / str(suspension)
        folder.mkdir()
        lab = Lab(folder)
        lab.job.ends.put_nowait(None)
        try:
            await lab.scheduler.run_now(None)
        finally:
            assert lab.scheduler.current is None
            records.append(lab.history.read())

    records: list[list[RunReport]] = []
    with nothing_left():
        while await cancel_at(suspension, work, times=2):
            suspension += 1
    assert suspension > 2
    assert all(len(each) == 1 for each in records)
