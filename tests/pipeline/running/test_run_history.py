"""History of runs in the state directory."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from tierd.errors import StateDirError
from tierd.pipeline.committing import RunTally
from tierd.pipeline.running.run_history import HISTORY_NAME, RunHistory, RunOutcome, RunReport, report_json


def a_run(number: int, outcome: RunOutcome = RunOutcome.SUCCEEDED) -> RunReport:
    return RunReport(
        run_id=f"run-{number}",
        trigger="schedule",
        attempt=1,
        began_ms=number * 1000,
        ended_ms=number * 1000 + 500,
        outcome=outcome,
        tally=RunTally(partitions=1, groups_replaced=number, bytes_before=9),
        counts={"records_read": number},
        problems=("orders-0: damaged",),
    )


def test_runs_are_read_as_they_were_appended(tmp_path: Path) -> None:
    history = RunHistory(tmp_path)
    runs = [a_run(1), a_run(2, RunOutcome.PARTLY)]
    for run in runs:
        history.append(run)
    assert RunHistory(tmp_path).read() == runs


def test_history_line_has_the_fields_that_the_commands_print(tmp_path: Path) -> None:
    RunHistory(tmp_path).append(a_run(1))
    content = (tmp_path / HISTORY_NAME).read_text()
    assert content == (
        '{"run_id":"run-1","trigger":"schedule","attempt":1,"began_ms":1000,"ended_ms":1500,"outcome":"succeeded",'
        '"partitions":1,"groups_replaced":1,"groups_unchanged":0,"groups_failed":0,"audited_segments":0,'
        '"audited_bytes":0,"damaged_segments":0,"bytes_before":9,"bytes_after":0,'
        '"counts":{"records_read":1},"problems":["orders-0: damaged"],"log_file":""}\n'
    )
    assert list(json.loads(content).items()) == list(report_json(a_run(1)).items())


def test_history_line_from_before_audits_is_read(tmp_path: Path) -> None:
    later = {each.name for each in fields(RunTally) if each.name.startswith(("audited", "damaged"))}
    line = {name: value for name, value in report_json(a_run(1)).items() if name not in later}
    (tmp_path / HISTORY_NAME).write_text(json.dumps(line) + "\n")
    assert RunHistory(tmp_path).read() == [a_run(1)]


def test_history_without_runs_is_empty(tmp_path: Path) -> None:
    assert RunHistory(tmp_path).read() == []


def test_the_oldest_runs_are_dropped(tmp_path: Path) -> None:
    history = RunHistory(tmp_path, runs_kept=3)
    for number in range(5):
        history.append(a_run(number))
    assert [run.run_id for run in history.read()] == ["run-2", "run-3", "run-4"]


def test_malformed_line_is_skipped_and_the_others_are_read(tmp_path: Path) -> None:
    history = RunHistory(tmp_path)
    history.append(a_run(1))
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(b'{"run_id": torn\n')
    history.append(a_run(2))
    assert [run.run_id for run in history.read()] == ["run-1", "run-2"]


def test_missing_state_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateDirError, match=HISTORY_NAME.partition(".")[0]):
        RunHistory(tmp_path / "gone").append(a_run(1))


def test_only_partly_failed_and_timed_out_runs_are_problems() -> None:
    assert {outcome for outcome in RunOutcome if outcome.is_problem} == {
        RunOutcome.PARTLY,
        RunOutcome.FAILED,
        RunOutcome.TIMED_OUT,
    }
