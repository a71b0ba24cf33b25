"""``tierd compact``, with and without a daemon; in these tests the job needs no Spark."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.command import CommandResult
from tests.scenarios.installation import Installation
from tests.scenarios.interrupted_tierd import command
from tests.services.waiting import is_stopped, wait_until
from tierd.pipeline import RunHistory

DEADLINE_S = 60.0
Compact = Callable[..., CommandResult]


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    """Return the folder of the command that replaces spark-submit."""
    return tmp_path / "spark"


@pytest.fixture
def compact(copied: Installation, spark: Path) -> Compact:
    def run(*arguments: str) -> CommandResult:
        line = [*command(spark), "compact", *arguments, "--config", str(copied.config_file)]
        ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        return CommandResult(ended.returncode, ended.stdout, ended.stderr)

    return run


def begun(copied: Installation, prefix: tuple[str, ...]) -> "subprocess.Popen[str]":
    line = [*prefix, "compact", "--once", "--config", str(copied.config_file)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ranges(copied: Installation) -> list[tuple[int, int]]:
    listed = copied.segments("orders-0")
    return [(s["start_offset"], s["end_offset"]) for s in listed if s["state"] == "COPY_SEGMENT_FINISHED"]


@pytest.mark.parametrize("arguments", [(), ("--once", "--history"), ("--history", "--dry-run")])
def test_compact_requires_either_once_or_history(tierd: Installation, arguments: tuple[str, ...]) -> None:
    ended = tierd.tierd("compact", *arguments)
    assert ended.exit_code == 2
    assert "next: tierd compact --once --dry-run" in ended.stderr


def test_compact_of_a_partition_that_is_not_led_here_is_refused_by_name(copied: Installation) -> None:
    for arguments in (("--once",), ("--once", "--dry-run")):
        ended = copied.tierd("compact", *arguments, "nowhere-3")
        assert ended.exit_code == 2, ended.output
        assert "nowhere-3: not led here" in ended.stderr


def test_compact_without_java_begins_no_run(copied: Installation, tmp_path: Path) -> None:
    copied.configure({"pipeline": {"java_home": str(tmp_path / "nowhere")}})
    ended = copied.tierd("compact", "--once")
    assert ended.exit_code == 2
    assert ended.stderr.splitlines()[-1] == "  next: correct pipeline.java_home or JAVA_HOME"
    assert copied.tierd("compact", "--history", "--json").json() == []


def test_dry_run_lists_planned_and_skipped_partitions_and_changes_no_segment(copied: Installation) -> None:
    for _ in range(2):
        plan = copied.tierd("compact", "--once", "--dry-run", "--json").json()
        (work,) = plan["planned"]
        assert work | {"bytes": 0} == {
            "partition": "orders-0",
            "kind": "merge",
            "groups": 1,
            "segments": 3,
            "bytes": 0,
            "first_dirty_offset": 0,
            "end_offset": 11,
        }
        assert plan["skipped"] == [{"partition": "audit-0", "reason": "no segment in the tier is readable"}]
    ended = copied.tierd("compact", "--once", "--dry-run")
    assert "1 partitions would be worked on, 1 not" in ended.stdout
    assert "no segment in the tier is readable" in ended.stdout
    assert ranges(copied) == [(0, 3), (4, 7), (8, 11)]


@pytest.mark.parametrize("is_daemon_there", [True, False])
def test_run_merges_small_segments_and_is_in_the_history(
    copied: Installation, compact: Compact, spark: Path, *, is_daemon_there: bool
) -> None:
    copied.configure({"pipeline": {"audit_bytes": 0}})
    records = copied.cat("orders-0")
    if is_daemon_there:
        with copied.daemon(command=command(spark)):
            ended, again = compact("--once"), compact("--once", "--json")
    else:
        ended, again = compact("--once"), compact("--once", "--json")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("succeeded: 1 partitions, 1 groups replaced, 0 unchanged, 0 failed; ")
    assert ranges(copied) == [(0, 11)]
    assert copied.cat("orders-0") == records
    assert again.exit_code == 0, again.output
    assert again.json()["outcome"] == "nothing_due"
    first, second = copied.tierd("compact", "--history", "--json").json()
    assert (first["outcome"], first["groups_replaced"], first["trigger"]) == ("succeeded", 1, "command")
    assert Path(first["log_file"]).is_file()
    assert second == again.json()
    table = copied.tierd("compact", "--history").stdout
    assert first["run_id"] in table
    assert "nothing_due" in table


def test_segments_that_a_run_does_not_rewrite_are_audited(copied: Installation, compact: Compact) -> None:
    assert compact("--once").exit_code == 0
    (work,) = copied.tierd("compact", "--once", "--dry-run", "--json").json()["planned"]
    assert (work["kind"], work["segments"], work["groups"], work["end_offset"]) == ("audit", 1, 1, 11)
    stdout = copied.tierd("compact", "--once", "--dry-run").stdout
    assert "0 partitions would be worked on, 2 not; 1 segments would be audited" in stdout
    ended = compact("--once", "orders-0")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.splitlines()[1].startswith("audited: 1 segments, ")
    assert compact("--once", "audit-0", "--json").json()["outcome"] == "nothing_due", "that partition has no segment"
    _, report, _ = copied.tierd("compact", "--history", "--json").json()
    assert (report["outcome"], report["partitions"], report["audited_segments"]) == ("succeeded", 0, 1)
    assert (report["damaged_segments"], report["groups_unchanged"]) == (0, 0)
    assert report["audited_bytes"] == work["bytes"]
    assert ranges(copied) == [(0, 11)]


def test_run_is_limited_to_the_named_partitions(copied: Installation, compact: Compact) -> None:
    report = compact("--once", "audit-0", "--json").json()
    assert report["outcome"] == "nothing_due"
    assert len(ranges(copied)) == 3


def test_ctrl_c_ends_a_run_of_this_process_and_changes_no_segment(copied: Installation, spark: Path) -> None:
    run = begun(copied, command(spark, "begun", signal.SIGSTOP))
    wait_until(lambda: is_stopped(run.pid), what="the run to stand still", deadline_s=DEADLINE_S)
    run.send_signal(signal.SIGINT)
    run.send_signal(signal.SIGCONT)
    said, _ = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 130, said
    assert "Traceback" not in said
    assert ranges(copied) == [(0, 3), (4, 7), (8, 11)]
    (report,) = RunHistory(copied.state_dir).read()
    assert report.outcome == "cancelled"


def test_run_of_the_daemon_continues_after_ctrl_c(copied: Installation, spark: Path) -> None:
    with copied.daemon(command=command(spark, "begun", signal.SIGSTOP)) as daemon:
        run = begun(copied, command(spark))
        wait_until(lambda: is_stopped(daemon.pid), what="the daemon to stand still", deadline_s=DEADLINE_S)
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=DEADLINE_S)
        assert run.returncode == 130, said
        daemon.send_signal(signal.SIGCONT)
        daemon.wait_until(lambda: last_run(daemon.status()) == "succeeded", what="the end of the run")
    assert ranges(copied) == [(0, 11)]


def test_stop_of_the_daemon_ends_its_run(copied: Installation, spark: Path) -> None:
    with copied.daemon(command=command(spark, "begun", signal.SIGSTOP)) as daemon:
        run = begun(copied, command(spark))
        wait_until(lambda: is_stopped(daemon.pid), what="the daemon to stand still", deadline_s=DEADLINE_S)
        daemon.send_signal(signal.SIGTERM)
        daemon.send_signal(signal.SIGCONT)
        assert daemon.wait_end() == 0, daemon.log_tail()
        said, _ = run.communicate(timeout=DEADLINE_S)
        assert run.returncode in {1, 3}, said
    (report,) = RunHistory(copied.state_dir).read()
    assert report.outcome == "cancelled"
    assert ranges(copied) == [(0, 3), (4, 7), (8, 11)]
    assert not list((copied.state_dir / "pipeline" / "runs").glob("*"))


def last_run(status: dict[str, Any]) -> str | None:
    report = status["pipeline"]["last_run"]
    return None if report is None else str(report["outcome"])
