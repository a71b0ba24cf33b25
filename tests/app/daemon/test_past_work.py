"""Runs, drills, deletions and cost, from the files of a state directory."""

from pathlib import Path

import pytest

from tests.fakes.manual_clock import ManualClock
from tests.tiering.removing.test_ledger import entry
from tierd.app.daemon import past_work
from tierd.app.daemon.bounded_jobs import BoundedJobs
from tierd.app.daemon.past_work import PastWorkReader
from tierd.config import RemoteSettings
from tierd.cost import CostReport
from tierd.model import TopicPartition
from tierd.pipeline import RunHistory, RunReport
from tierd.pipeline.running.run_history import HISTORY_NAME, RunOutcome
from tierd.restore import DrilledPartition, DrillHistory, DrillOutcome
from tierd.tiering import DeletionLedger

REMOTE = RemoteSettings.model_validate({"backend": "filesystem", "filesystem": {"path": "/tier"}})


def reader(state_dir: Path, clock: ManualClock | None = None) -> PastWorkReader:
    return PastWorkReader(state_dir, REMOTE, None, jobs=BoundedJobs(), clock=clock or ManualClock())


async def test_work_of_every_kind_is_read_newest_first(tmp_path: Path) -> None:
    for number in (1, 2):
        RunHistory(tmp_path).append(
            RunReport(run_id=f"r{number}", trigger="schedule", attempt=1, began_ms=1, ended_ms=2,
                      outcome=RunOutcome.SUCCEEDED)
        )  # fmt: skip
        DrillHistory(tmp_path).append(
            DrilledPartition(run_id=f"d{number}", trigger="command", partition="orders-0",
                             topic_id="AAAAAAAAAAAAAAAAAAAAAA", began_ms=1, ended_ms=2, outcome=DrillOutcome.PROVEN)
        )  # fmt: skip
        await DeletionLedger(tmp_path).record(entry(number))

    past = await reader(tmp_path).read(None)

    assert [run.run_id for run in past.runs] == ["r2", "r1"]
    assert [drill.run_id for drill in past.drills] == ["d2", "d1"]
    assert [line.start_offset for line in past.deletions] == [2, 1]
    assert past.cost is not None
    assert past.problems == ()
    other = await reader(tmp_path).read(TopicPartition("other", 0))
    assert other.deletions == ()


async def test_file_that_cannot_be_read_is_a_problem_and_the_others_are_there(tmp_path: Path) -> None:
    (tmp_path / HISTORY_NAME).mkdir()
    await DeletionLedger(tmp_path).record(entry(1))

    past = await reader(tmp_path).read(None)

    assert HISTORY_NAME in past.problems[0]
    assert len(past.deletions) == 1


async def test_cost_is_computed_again_after_ten_minutes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def cost(*_: object, **__: object) -> CostReport:
        computed.append(1)
        return CostReport("USD", len(computed), ())

    monkeypatch.setattr(past_work, "broker_cost", cost)
    clock = ManualClock()
    work = reader(tmp_path, clock)
    hours = []
    for passed_s in (0, 599, 1):
        clock.advance(passed_s)
        report = (await work.read(None)).cost
        hours.append(report.hours if report else None)
    assert hours == [1, 1, 2]
