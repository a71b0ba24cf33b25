"""The runs that are remembered."""

from pathlib import Path

import pytest

from tierd.errors import StateDirError
from tierd.pipeline.running.history import HISTORY_NAME, RunHistory, RunOutcome, RunReport


def a_run(number: int, outcome: RunOutcome = RunOutcome.SUCCEEDED) -> RunReport:
    return RunReport(
        run_id=f"run-{number}",
        trigger="schedule",
        attempt=1,
        began_ms=number * 1000,
        ended_ms=number * 1000 + 500,
        outcome=outcome,
        counts={"records_read": number},
        problems=("orders-0: damaged",),
    )


def test_runs_are_read_back_as_they_were(tmp_path: Path) -> None:
    history = RunHistory(tmp_path)
    runs = [a_run(1), a_run(2, RunOutcome.PARTLY)]
    for run in runs:
        history.append(run)
    assert RunHistory(tmp_path).read() == runs


def test_without_any_run_there_is_none(tmp_path: Path) -> None:
    assert RunHistory(tmp_path).read() == []


def test_the_oldest_runs_are_dropped(tmp_path: Path) -> None:
    history = RunHistory(tmp_path, runs_kept=3)
    for number in range(5):
        history.append(a_run(number))
    assert [run.run_id for run in history.read()] == ["run-2", "run-3", "run-4"]


def test_a_line_that_cannot_be_understood_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    history = RunHistory(tmp_path)
    history.append(a_run(1))
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(b'{"run_id": torn\n')
    history.append(a_run(2))
    assert [run.run_id for run in history.read()] == ["run-1", "run-2"]


def test_a_state_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateDirError, match=HISTORY_NAME.partition(".")[0]):
        RunHistory(tmp_path / "gone").append(a_run(1))


def test_only_what_somebody_should_look_at_is_a_problem() -> None:
    assert {outcome for outcome in RunOutcome if outcome.is_problem} == {
        RunOutcome.PARTLY,
        RunOutcome.FAILED,
        RunOutcome.TIMED_OUT,
    }
