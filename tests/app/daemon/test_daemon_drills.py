"""Drills of the daemon: by the schedule, whatever goes wrong, and what is proven in metrics and status."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter
from tests.fakes.manual_clock import ManualClock
from tests.restore.drill.drills import drilled, named
from tests.scenarios.installation import Installation
from tierd.app import copy_once
from tierd.app.daemon.daemon_drills import DaemonDrills, new_daemon_drills
from tierd.app.engine.compose import compose
from tierd.app.engine.deployment import Deployment
from tierd.app.restore.drill_run import DrillProgress, DrillRequest, DrillResult, DrillRun
from tierd.config import load_config
from tierd.errors import RetriableRemoteStorageError
from tierd.model import TopicIdPartition
from tierd.restore import DrilledPartition, DrillHistory, DrillOutcome
from tierd.schedule import Schedule
from tierd.telemetry import DrillUse

MIDNIGHT_MS = round(datetime(2026, 7, 1, tzinfo=UTC).timestamp() * 1000)
HOUR_S = 3600.0


class ToldRun(DrillRun):
    """Run whose results a test tells."""

    def __init__(self, history: DrillHistory, result: Callable[[], DrilledPartition]) -> None:
        self.requests: list[DrillRequest] = []
        self.result = result
        self._told = history

    async def run(self, request: DrillRequest, progress: DrillProgress) -> None:
        self.requests.append(request)
        drill = self.result()
        progress.begun(drill.topic_id_partition)
        self._told.append(drill)
        progress.drilled(DrillResult(drill, None))


class Lab:
    def __init__(self, folder: Path, *, schedule: str | None = "0 3 * * *", of_broker: str | None = None) -> None:
        self.clock = ManualClock(now_ms=MIDNIGHT_MS)
        self.history = DrillHistory(folder)
        self.job = ToldRun(self.history, self.proven)
        self.led: tuple[TopicIdPartition, ...] = (named(0), named(1), named(0, topic="audit"))
        self.drills = DaemonDrills(
            self.job,
            self.history,
            lambda: self.led,
            timetable=None if schedule is None else Schedule(schedule),
            broker_timetable=None if of_broker is None else Schedule(of_broker),
            clock=self.clock,
            random=lambda: 0.5,
        )

    def proven(self) -> DrilledPartition:
        return drilled(0, self.clock.now_ms())

    @property
    def use(self) -> DrillUse:
        use = self.drills.use()
        assert use is not None
        return use

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[None]"]:
        task = asyncio.create_task(self.drills.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def pass_time(self, seconds: float) -> None:
        end_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < end_s:
            await eventually(lambda: self.clock.sleeping > 0, what="a sleeping task")
            self.clock.advance(min(60.0, end_s - self.clock.monotonic_s()))
        await eventually(lambda: self.clock.sleeping > 0, what="a sleeping task")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, schedule="5 * * * *")


async def test_drill_begins_at_its_time_with_the_led_partitions(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(4 * 60)
        assert lab.job.requests == []
        assert lab.use.next_begin_s == MIDNIGHT_MS / 1000 + 300
        await lab.pass_time(2 * 60)
    (request,) = lab.job.requests
    assert (request.trigger, request.names, request.is_everything) == ("schedule", (), False)
    assert [request.wants(each) for each in (named(0), named(2))] == [True, False]
    assert lab.use.next_begin_s == MIDNIGHT_MS / 1000 + 300 + HOUR_S


async def test_drill_of_the_whole_broker_has_a_schedule_of_its_own(tmp_path: Path) -> None:
    lab = Lab(tmp_path, schedule="5 * * * *", of_broker="30 0 1 * *")
    async with lab.running():
        await lab.pass_time(1)
        facts = lab.drills.facts(())
        assert (facts["next_begin_ms"], facts["next_broker_begin_ms"]) == (
            MIDNIGHT_MS + 5 * 60_000,
            MIDNIGHT_MS + 30 * 60_000,
        )
        await lab.pass_time(70 * 60)
    assert [request.is_broker for request in lab.job.requests] == [False, True, False]
    assert lab.use.next_begin_s == MIDNIGHT_MS / 1000 + 2 * HOUR_S + 300


async def test_broker_is_drilled_without_a_schedule_of_samples(tmp_path: Path) -> None:
    lab = Lab(tmp_path, schedule=None, of_broker="30 0 1 * *")
    async with lab.running():
        await lab.pass_time(31 * 60)
        assert lab.drills.facts(())["enabled"] is True
    assert [request.is_broker for request in lab.job.requests] == [True]


async def test_metrics_have_the_oldest_proof_of_each_topic(lab: Lab) -> None:
    lab.history.append(drilled(0, 50_000))
    lab.history.append(drilled(1, 20_000))
    lab.history.append(drilled(1, 30_000, outcome=DrillOutcome.FAILED, problem="lost"))
    async with lab.running():
        await lab.pass_time(1)
    assert lab.use.proven_until_s == {"orders": 20.0, "audit": 0.0}
    assert (lab.use.unproven, lab.use.failing, lab.use.last_success_s) == (1, 1, 50.0)
    lab.led = (named(0),)
    assert lab.use.proven_until_s == {"orders": 50.0}
    assert (lab.use.unproven, lab.use.failing) == (0, 0)


async def test_status_names_partitions_that_are_not_proven(lab: Lab) -> None:
    lab.job.result = lambda: replace(lab.proven(), outcome=DrillOutcome.FAILED, problem="segment 7 is damaged")
    async with lab.running():
        await lab.pass_time(6 * 60)
        facts = lab.drills.facts(())
    assert (facts["enabled"], facts["running"], facts["problem"]) == (True, False, "")
    assert lab.use.drilled == {"failed": 1}
    assert lab.use.failing == 1
    assert lab.use.last_success_s is None


async def test_drill_by_a_command_is_seen_within_a_minute(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(1)
        lab.history.append(drilled(0, 50_000))
        await lab.pass_time(61)
        assert lab.use.proven_until_s["orders"] == 0.0  # partition 1
        lab.led = (named(0),)
        assert lab.use.proven_until_s["orders"] == 50.0


async def test_daemon_without_schedule_and_drills_has_no_metrics(tmp_path: Path) -> None:
    lab = Lab(tmp_path, schedule=None)
    async with lab.running():
        await lab.pass_time(61)
        assert lab.drills.use() is None
        assert lab.drills.facts(())["enabled"] is False
        lab.history.append(drilled(0, 50_000))
        await lab.pass_time(61)
        assert lab.use.last_success_s == 50.0
    assert lab.job.requests == []


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (RetriableRemoteStorageError("no answer", remedy="wait"), "no answer; wait"),
        (ZeroDivisionError("a bug"), "ZeroDivisionError, a bug; the daemon's log has the traceback"),
    ],
    ids=["store", "bug"],
)
async def test_drill_that_ends_early_is_counted_and_the_next_one_begins(
    lab: Lab, error: Exception, problem: str
) -> None:
    def fail() -> DrilledPartition:
        raise error

    lab.job.result = fail
    async with lab.running():
        await lab.pass_time(6 * 60)
        assert (lab.use.run_failures, lab.drills.facts(())["problem"]) == (1, problem)
        lab.job.result = lab.proven
        await lab.pass_time(HOUR_S)
        assert (lab.use.run_failures, lab.drills.facts(())["problem"]) == (1, "")
    assert len(lab.job.requests) == 2


async def test_clock_that_is_set_back_has_the_next_begin_computed_again(lab: Lab) -> None:
    async with lab.running():
        await lab.pass_time(6 * 60)
        assert lab.use.next_begin_s == MIDNIGHT_MS / 1000 + 300 + HOUR_S
        lab.clock.step_wall_clock(-5 * 60 * 1000)
        await lab.pass_time(60)
        assert lab.use.next_begin_s == MIDNIGHT_MS / 1000 + 300


async def test_history_that_cannot_be_read_is_a_problem_of_the_status(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "drills.jsonl").mkdir()
    async with lab.running() as task:
        await lab.pass_time(1)
        assert "drills.jsonl" in str(lab.drills.facts(())["problem"])
        assert not task.done()


async def test_scheduled_drill_restores_from_the_stores_of_the_daemon(tmp_path: Path) -> None:
    log_dir = LogDirWriter(tmp_path / "kafka")
    orders = log_dir.add_partition("orders")
    for _ in range(3):
        orders.append([b"value %d" % n for n in range(4)])
        orders.roll()
    log_dir.write_checkpoints()
    tierd = Installation(tmp_path / "tierd", [log_dir.path], settings={"drill": {"schedule": "5 * * * *"}})
    deployment = Deployment(load_config(tierd.config_file, {}), tierd.config_file)
    statuses = tuple(outcome.status for outcome in await copy_once(deployment, None))
    clock = ManualClock(now_ms=MIDNIGHT_MS)
    async with compose(deployment) as engine:
        drills = new_daemon_drills(replace(engine, clock=clock), lambda: statuses)
        task = asyncio.create_task(drills.run())
        try:
            for _ in range(6):
                await eventually(lambda: clock.sleeping > 0, what="a sleeping task")
                clock.advance(60)
            await eventually(lambda: DrillHistory(tierd.state_dir).version() is not None, what="the drill to end")
            await eventually(lambda: clock.sleeping > 0, what="a sleeping task")
            facts = drills.facts(statuses)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    (line,) = DrillHistory(tierd.state_dir).read()
    assert (line.partition, line.outcome, line.trigger) == ("orders-0", DrillOutcome.PROVEN, "schedule")
    assert (line.end_offset, line.is_from_bucket) == (12, False)
    assert (facts["partitions"], facts["unproven"], facts["problem"]) == (1, 0, "")
    assert facts["proven_until_ms"] == line.began_ms
