"""Pipeline inside a running daemon: requests to it, and its end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from tests.coded import coded
from tests.fakes.eventually import eventually
from tests.fakes.left_tasks import nothing_left
from tests.fakes.manual_clock import ManualClock
from tests.pipeline.running.told_run import ToldRun
from tierd.app.spark.build_pipeline import Pipeline
from tierd.app.spark.daemon_pipeline import DaemonPipeline
from tierd.errors import PipelineBusyError, PipelineError, TierError, TierErrorCode, UnknownPartitionError
from tierd.model import TopicPartition
from tierd.pipeline import PipelineScheduler, RunHistory, RunLimits
from tierd.pipeline.running.run_history import RunOutcome
from tierd.schedule import Schedule
from tierd.serve import COMPACT
from tierd.serve.control_protocol import ControlRequestLine
from tierd.testing import cancel_at

MINUTE_S = 60.0


@dataclass(frozen=True)
class Candidates:
    """Broker that leads one partition."""

    led: TopicPartition

    def require_led(self, names: Sequence[TopicPartition] | None) -> None:
        if names and self.led not in names:
            raise UnknownPartitionError(f"{names[0]}: not led here")


class Erasures:
    """Keeper without requests."""

    async def run(self) -> None:
        await asyncio.Event().wait()


class Lab:
    def __init__(self, folder: Path) -> None:
        self.work = ToldRun(replaces_first=True)
        self.clock = ManualClock()
        self.history = RunHistory(folder)
        scheduler = PipelineScheduler(
            self.work,
            timetable=Schedule("* * * * *"),
            limits=RunLimits(timeout_s=3600, retries=0),
            history=self.history,
            clock=self.clock,
            random=lambda: 0.5,
        )
        unused, candidates = cast("Any", None), cast("Any", Candidates(TopicPartition("orders", 0)))
        erasures = cast("Any", Erasures())
        self.pipeline = Pipeline(scheduler, unused, candidates, erasures, unused)

    @asynccontextmanager
    async def running(self, *, enabled: bool) -> AsyncIterator[DaemonPipeline]:
        """Run the task of the control, and stop it in order at the end."""
        async with asyncio.TaskGroup() as group:
            control = DaemonPipeline(self.pipeline, group, enabled=enabled)
            task = group.create_task(control.run())
            await asyncio.sleep(0)
            yield control
            control.stop()
            await asyncio.wait_for(task, 60)

    async def ask(self, control: DaemonPipeline, *names: str) -> Any:  # noqa: ANN401 - JSON has any type
        (compact,) = [handler for handler in control.handlers() if handler.verb == COMPACT.name]
        return await compact.answer(ControlRequestLine(command=COMPACT.name, partitions=names))

    def outcomes(self) -> list[RunOutcome]:
        return [report.outcome for report in self.history.read()]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


async def test_requested_run_is_in_the_status_until_its_end(lab: Lab) -> None:
    async with lab.running(enabled=False) as control:
        answer = await lab.ask(control, "orders-0")
        await eventually(lambda: bool(lab.work.begun), what="the run")
        facts = cast("Any", control.facts())
        assert facts["running"]["run_id"] == answer["run_id"]
        assert (facts["enabled"], facts["running"]["stage"], facts["last_run"]) == (False, "rewriting", None)
        lab.work.ends.put_nowait(None)
        await eventually(lambda: cast("Any", control.facts())["last_run"] is not None, what="the end of the run")
        facts = cast("Any", control.facts())
        assert (facts["running"], facts["last_run"]["run_id"]) == (None, answer["run_id"])
    assert lab.work.begun == [[TopicPartition("orders", 0)]]
    assert lab.outcomes() == [RunOutcome.SUCCEEDED]


async def test_second_run_is_refused_while_another_runs(lab: Lab) -> None:
    async with lab.running(enabled=False) as control:
        await lab.ask(control)
        with pytest.raises(PipelineBusyError):
            await lab.ask(control)
    assert lab.work.begun == [None]


async def test_request_for_an_unknown_or_malformed_partition_begins_no_run(lab: Lab) -> None:
    async with lab.running(enabled=False) as control:
        with pytest.raises(UnknownPartitionError):
            await lab.ask(control, "nowhere-3")
        with pytest.raises(
            TierError,
            check=coded(TierErrorCode.CONTROL),
            match=r"compact: partitions\.0: 'nonsense' is not <topic>-<partition>",
        ):
            await lab.ask(control, "nonsense")
    assert lab.work.begun == []


async def test_failed_run_ends_neither_the_daemon_nor_the_next_run(lab: Lab) -> None:
    async with lab.running(enabled=False) as control:
        for _ in range(2):
            await lab.ask(control)
            lab.work.ends.put_nowait(PipelineError("the job ended with exit code 1"))
            await eventually(lambda: cast("Any", control.facts())["running"] is None, what="the end of the run")
    assert lab.outcomes() == [RunOutcome.PARTLY, RunOutcome.PARTLY]


async def test_stop_ends_the_requested_run_and_refuses_further_ones(lab: Lab) -> None:
    async with lab.running(enabled=False) as control:
        await lab.ask(control)
        control.stop()
        await eventually(lambda: lab.outcomes() == [RunOutcome.CANCELLED], what="the end of the run")
        with pytest.raises(PipelineBusyError, match="stopping"):
            await lab.ask(control)


async def test_enabled_pipeline_begins_scheduled_runs_and_ends_them_with_the_daemon(lab: Lab) -> None:
    with capture_logs() as logs:
        async with lab.running(enabled=True) as control:
            await eventually(lambda: lab.clock.sleeping == 1, what="the wait for the next minute")
            assert cast("Any", control.facts())["next_begin_ms"] % 60_000 == 0
            lab.clock.advance(MINUTE_S)
            await eventually(lambda: lab.work.begun == [None], what="a run by the clock")
    assert lab.outcomes() == [RunOutcome.CANCELLED]
    assert [entry["trigger"] for entry in logs if entry["event"] == "run_begun"] == ["schedule"]


async def test_disabled_pipeline_begins_no_scheduled_run(lab: Lab) -> None:
    async with lab.running(enabled=False) as control:
        assert cast("Any", control.facts())["next_begin_ms"] is None
        assert lab.clock.sleeping == 0
    assert lab.outcomes() == []


async def test_pipeline_whose_end_is_cancelled_again_leaves_no_task(tmp_path: Path) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            await DaemonPipeline(Lab(tmp_path).pipeline, group, enabled=True).run()

    with nothing_left():
        assert await cancel_at(1, run, times=2)
