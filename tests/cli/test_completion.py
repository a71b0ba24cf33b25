"""Completion in a shell: verbs, options, and the names that the running daemon knows."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_imports import OF_A_QUESTION
from tests.fakes.answering_daemon import Request, answering_daemon
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tierd.cli.completion import completed_words
from tierd.serve import TotalsSummary
from tierd.version import read_build

DEADLINE_S = 60.0
VERBS = ["deletions", "delete-partition"]
NAMES = ["audit-0", "orders-0", "orders-1", "orders-eu-0"]
PROBE = """
import atexit, sys
atexit.register(lambda: open({file!r}, "w").write("\\n".join(sys.modules)))
from tierd.cli import main
main()
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "tierd.yaml"
    file.write_text("state_dir: .\n")
    return file


@pytest.fixture
def daemon(config: Path) -> Iterator[Path]:
    """Answer as a daemon with ``NAMES``; return the configuration."""

    def answer(request: Request) -> object:
        assert request["command"] == "partitions"
        return [name for name in NAMES if name.startswith(request.get("options", {}).get("prefix", ""))]

    with answering_daemon(config.parent, answer):
        yield config


def completed(line: str, config: Path) -> list[str]:
    """Return the completions of the last word of ``line`` in bash."""
    words = line.split(" ")
    environment = os.environ | {"_TIERD_COMPLETE": "complete_bash", "TIERD_CONFIG": str(config)}
    environment |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    program = PROBE.format(file=str(config.parent / "modules"))
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("tierd pause orders-", ["orders-0", "orders-1", "orders-eu-0"]),
        ("tierd pause orders-0 au", ["audit-0"]),
        ("tierd sync x", []),
        ("tierd segments orders-e", ["orders-eu-0"]),
        ("tierd export or", ["orders", "orders-eu"]),
    ],
)
def test_names_are_those_of_the_daemon_that_begin_like_the_word(line: str, names: list[str], daemon: Path) -> None:
    assert completed(line, daemon) == names


def test_daemon_of_the_named_socket_is_asked(daemon: Path, tmp_path: Path) -> None:
    line = f"tierd pause --socket {daemon.parent / 'control.sock'} au"

    assert completed(line, tmp_path / "absent.yaml") == ["audit-0"]


@pytest.mark.parametrize("text", ["state_dir: .\n", "state_dir: relative\n", "[", ""])
def test_without_a_daemon_there_are_no_names_and_no_message(config: Path, text: str) -> None:
    config.write_text(text)

    assert completed("tierd pause or", config) == []


def test_without_a_configuration_there_are_no_names_and_no_message(tmp_path: Path) -> None:
    (tmp_path / "somewhere").mkdir()

    assert completed("tierd pause or", tmp_path / "somewhere" / "absent.yaml") == []


def test_verbs_and_options_complete(config: Path) -> None:
    assert completed("tierd stat", config) == ["status"]
    assert completed("tierd log app", config) == ["append"]
    assert completed("tierd status --wa", config) == ["--watch"]


def completed_by_bash(line: str, config: Path) -> list[str]:
    """Return what bash itself gets from the function that tierd writes for it, for the last word of ``line``."""
    script = (
        'eval "$(_TIERD_COMPLETE=source_bash tierd)"; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
        '"$(complete -p tierd | sed "s/.*-F \\([^ ]*\\) .*/\\1/")" tierd; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = os.environ | {"TIERD_CONFIG": str(config), "PATH": f"{TIERD.parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", script, "bash", line],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("line", "names"),
    [("tierd pause orders-0 au", ["audit-0"]), ("tierd topics or", ["orders", "orders-eu"]), ("tierd dele", VERBS)],
)
def test_bash_completes_with_the_function_that_tierd_writes(line: str, names: list[str], daemon: Path) -> None:
    assert completed_by_bash(line, daemon) == names


def test_daemon_that_does_not_answer_keeps_no_shell_waiting(config: Path) -> None:
    released = threading.Event()

    def answer(_: Request) -> object:
        released.wait(DEADLINE_S)
        return NAMES

    with answering_daemon(config.parent, answer):
        try:
            assert completed_by_bash("tierd pause or", config) == []
            assert not released.is_set()
        finally:
            released.set()


def test_completion_of_a_name_imports_no_more_than_a_question(daemon: Path) -> None:
    completed("tierd pause or", daemon)

    assert sorted(set((daemon.parent / "modules").read_text().split()) & OF_A_QUESTION) == []


def test_completion_of_a_verb_imports_no_verb(config: Path) -> None:
    completed("tierd stat", config)

    modules = (config.parent / "modules").read_text().split()
    assert [name for name in modules if name.startswith("tierd.cli.commands")] == []


def test_words_are_read_as_each_shell_passes_them() -> None:
    assert completed_words({"_TIERD_COMPLETE": "complete_bash", "COMP_WORDS": "tierd pause or"}) == ["pause", "or"]
    assert completed_words({"_TIERD_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "tierd log a"}) == ["log", "a"]
    assert completed_words({"COMP_WORDS": "tierd pause"}) == []


def test_running_daemon_names_its_partitions_and_tells_its_work_and_its_build(copied: Installation) -> None:
    with copied.daemon():
        assert completed("tierd pause ", copied.config_file) == ["audit-0", "orders-0"]
        assert completed("tierd pause or", copied.config_file) == ["orders-0"]
        status = copied.ask("status", "--json").json()

    assert status["commit"] == read_build().commit
    assert set(status["totals"]) == set(TotalsSummary.model_fields)
    assert status["totals"]["store_requests"] > 0
