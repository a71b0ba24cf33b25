"""Common behaviour of all commands: help, exit codes, the two lines of a failure, and a quick start."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import TIERD, run_tierd
from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd
from tierd.cli.main import GROUPS, VERBS, VerbGroup

VISIBLE = [verb.name for verb in VERBS if not verb.hidden and not verb.group]


def test_help_names_every_verb_and_the_exit_codes() -> None:
    ended = run_tierd("--help")
    assert ended.exit_code == 0
    for verb in VISIBLE:
        assert f"│ {verb} " in ended.stdout
    assert "demo" not in ended.stdout
    assert "Exit codes" in ended.stdout


@pytest.mark.parametrize("verb", [" ".join(verb.words) for verb in VERBS])
def test_help_of_every_verb_has_an_example(verb: str, warm: WarmTierd) -> None:
    ended = warm.run(*verb.split(), "--help")
    assert ended.exit_code == 0, ended.output
    assert "Example" in ended.stdout
    assert f"tierd {verb}" in ended.stdout


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_lists_its_verbs(group: VerbGroup) -> None:
    ended = run_tierd(group.name, "--help")
    assert ended.exit_code == 0, ended.output
    own = {verb.name for verb in VERBS if verb.group == group.name}
    for name in {verb.name for verb in VERBS}:
        assert (f"│ {name} " in ended.stdout) == (name in own)


def test_help_imports_no_module_of_the_daemon() -> None:
    probe = (
        "import sys; from tierd.cli.main import build_app; build_app(['--help'])\n"
        "heavy = {'aiohttp', 'aiobotocore', 'pydantic', 'structlog', 'uvloop', 'sqlite3'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_help_takes_less_than_half_a_second_of_processor_time() -> None:
    def cpu_seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run_tierd("--help").exit_code == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Processor time, for a busy machine is no reason to fail; it is nearly all that a start consists of.
    assert min(cpu_seconds() for _ in range(5)) < 0.4


def test_version_is_printed() -> None:
    assert run_tierd("--version").stdout.startswith("tierd ")


@pytest.mark.parametrize("arguments", [["stats"], ["status", "--nonsense"], ["explain", "orders-0"], ["copy"], []])
def test_usage_mistakes_exit_with_2(arguments: list[str]) -> None:
    assert run_tierd(*arguments).exit_code == 2


def test_a_mistyped_verb_is_answered_with_the_nearest_one() -> None:
    assert "'status'" in run_tierd("stats").stderr


def test_failure_prints_a_cause_and_a_remedy_and_no_traceback(tierd: Installation) -> None:
    ended = tierd.tierd("status")
    assert ended.exit_code == 3
    cause, remedy = ended.stderr.splitlines()
    assert cause.startswith("tierd: no answer from tierd")
    assert remedy.startswith("  next: ")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["segments", "nothing-0"], 2, "nothing-0"),
        (["segments", "noname"], 2, "noname"),
        (["cat", "orders-0", "--from", "999"], 1, "out of range"),
        (["explain", "orders-0", "999"], 1, "not-written"),
        (["copy", "--once", "nothing-0"], 2, "nothing-0"),
        (["verify", "nothing-0"], 2, "nothing-0"),
        (["pause", "orders-0"], 3, "control.sock"),
        (["sync"], 3, "control.sock"),
    ],
)
def test_exit_code_depends_on_the_kind_of_error(
    tierd: Installation, arguments: list[str], exit_code: int, said: str
) -> None:
    ended = tierd.tierd(*arguments)
    assert ended.exit_code == exit_code, ended.output
    assert said in ended.output
    assert "Traceback" not in ended.output


def test_configuration_file_is_taken_from_the_environment(copied: Installation) -> None:
    environment = os.environ | {"TIERD_CONFIG": str(copied.config_file)}
    ended = subprocess.run([TIERD, "segments", "orders-0"], env=environment, capture_output=True, text=True, check=True)
    assert "COPY_SEGMENT_FINISHED" in ended.stdout


@pytest.mark.parametrize("state_dir", ["/proc/tierd", "/dev/null/tierd"])
def test_a_state_dir_that_cannot_be_made_is_named(tierd: Installation, state_dir: str) -> None:
    tierd.configure({"state_dir": state_dir})
    for arguments in (["run"], ["copy", "--once"]):
        ended = tierd.tierd(*arguments)
        assert ended.exit_code == 3, ended.output
        assert state_dir in ended.stderr
        assert "Traceback" not in ended.output


def test_log_dirs_of_two_clusters_are_refused(tierd: Installation, log_dir: LogDirWriter, tmp_path: Path) -> None:
    other = LogDirWriter(tmp_path / "other", cluster_id="b3RoZXItY2x1c3Rlci0wMQ")
    tierd.configure({"log_dirs": [{"path": str(log_dir.path)}, {"path": str(other.path)}]})
    ended = tierd.tierd("copy", "--once")
    assert ended.exit_code == 2, ended.output
    assert "cluster_id is ambiguous" in ended.stderr
