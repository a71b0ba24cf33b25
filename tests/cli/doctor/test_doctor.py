"""``tierd doctor`` beside a real daemon: sound, stopped, hung, and with a store or a log dir that is gone."""

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.cli.conftest import WarmInstallation
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import CommandResult, run_tierd
from tests.scenarios.installation import Installation
from tierd.cli.main import build_app

NOBODY = 65534
QUIET = ("clock", "log", "holds")  # areas of notes that depend on the host of the test


def examined(tierd: Installation, *options: str, exit_code: int) -> dict[str, Any]:
    ended = tierd.tierd("doctor", "--json", "--timeout", "60", "--log", str(tierd.root / "tierd.log"), *options)
    assert ended.exit_code == exit_code, ended.output
    answer: dict[str, Any] = ended.json()
    return answer


def urgent(answer: dict[str, Any]) -> dict[str, str]:
    """Return area and command of the findings that are urgent."""
    return {each["area"]: each["command"] for each in answer["findings"] if each["urgency"] == "now"}


def stored(tierd: Installation) -> list[Path]:
    """Return every file of the tier, without the empty lock file."""
    return sorted(path for path in tierd.store_dir.rglob("*") if path.is_file() and path.name != "replace.lock")


def test_sound_daemon_has_no_finding_and_exits_with_0(tierd: Installation) -> None:
    with tierd.daemon():
        answer = examined(tierd, exit_code=0)

    assert [each for each in answer["findings"] if each["area"] not in QUIET] == []
    assert (answer["ok"], answer["daemon_answers"]) == (True, True)
    assert {step["outcome"] for step in answer["steps"]} == {"ok"}
    assert {step["area"] for step in answer["steps"]} >= {"log dirs", "disks", "metadata store", "object store"}


def test_examination_leaves_no_object_in_the_store(copied: Installation) -> None:
    before = stored(copied)

    examined(copied, exit_code=1)

    assert stored(copied) == before


def test_daemon_that_was_never_started_is_urgent_with_the_command_that_looks(tierd: Installation) -> None:
    assert urgent(examined(tierd, exit_code=1)) == {"daemon": "systemctl status tierd"}


def test_daemon_that_hangs_is_named_with_its_process_within_a_bounded_time(tierd: Installation) -> None:
    with tierd.daemon() as daemon:
        daemon.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        ended = tierd.tierd("doctor", "--offline", "--timeout", "2")
        took_s = time.monotonic() - began_s
        daemon.send_signal(signal.SIGCONT)

    assert ended.exit_code == 1
    assert f"process {daemon_pid(ended)} holds the state directory and does not answer" in ended.stdout
    assert f"    run:  kill -CONT {daemon_pid(ended)}\n" in ended.stdout
    assert took_s < 30


def daemon_pid(ended: CommandResult) -> str:
    return ended.stdout.partition("daemon: process ")[2].split()[0]


def test_store_that_refuses_is_urgent_while_the_log_dirs_are_sound(tierd: Installation) -> None:
    s3 = {"bucket": "b", "endpoint_url": "http://127.0.0.1:9", "region": "us-east-1"}
    tierd.configure({"remote": {"backend": "s3", "s3": {**s3, "access_key_id": "a", "secret_access_key": "b"}}})

    answer = examined(tierd, exit_code=1)

    assert urgent(answer)["object store"] == f"tierd check-config --online --config {tierd.config_file}"
    assert {step["outcome"] for step in answer["steps"] if step["area"] in ("log dirs", "metadata store")} == {"ok"}
    assert "secret_access_key" in str([each for each in answer["findings"] if each["area"] == "permissions"])


def test_store_that_hangs_is_a_finding_within_a_bounded_time(tierd: Installation, hanging_server: str) -> None:
    s3 = {"bucket": "b", "endpoint_url": hanging_server, "region": "us-east-1"}
    tierd.configure({"remote": {"backend": "s3", "s3": {**s3, "access_key_id": "a", "secret_access_key": "b"}}})
    began_s = time.monotonic()

    ended = tierd.tierd("doctor", "--json", "--timeout", "3")

    assert "object store" in urgent(ended.json())
    assert time.monotonic() - began_s < 60


def test_log_dir_that_is_gone_is_urgent_in_status_and_check(
    tierd: Installation, log_dir: LogDirWriter, tmp_path: Path
) -> None:
    with tierd.daemon() as daemon:
        log_dir.path.rename(tmp_path / "unmounted")
        daemon.wait_until(lambda: daemon.status()["log_dirs"][0]["problem"], what="the log dir to be offline")
        answer = examined(tierd, exit_code=1)
        (tmp_path / "unmounted").rename(log_dir.path)

    problems = [each["problem"] for each in answer["findings"] if each["area"] == "log dirs"]
    assert any("is offline" in problem for problem in problems)
    assert urgent(answer)["log dirs"]


def test_faults_of_the_file_are_findings_and_the_daemon_is_asked_all_the_same(tierd: Installation) -> None:
    with tierd.daemon():
        tierd.configure({"nonsense": 1})
        answer = examined(tierd, exit_code=1)

    assert answer["daemon_answers"]
    (finding,) = [each for each in answer["findings"] if each["area"] == "configuration"]
    assert "nonsense" in finding["problem"]
    assert finding["urgency"] == "soon"


@pytest.mark.parametrize("content", [None, "log_dirs: [\n"])
def test_file_that_cannot_be_used_is_a_finding_and_no_crash(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "tierd.yaml"
    if content is not None:
        file.write_text(content)

    ended = run_tierd("doctor", "--config", str(file), "--json")

    assert ended.exit_code == 1, ended.output
    assert "Traceback" not in ended.stderr
    assert {"daemon", "configuration"} <= {each["area"] for each in ended.json()["findings"]}


def test_file_of_another_user_is_no_usage_error() -> None:
    command: Any = typer.main.get_command(build_app(["doctor"]))
    with tempfile.TemporaryDirectory() as folder:
        file, user = Path(folder, "tierd.yaml"), os.getuid()
        Path(folder).chmod(0o755)
        file.touch(0)
        os.setresuid(user or NOBODY, user or NOBODY, user)  # root may read every file
        try:
            context = command.commands["doctor"].make_context("doctor", ["--config", str(file)])
        finally:
            os.setresuid(user, user, user)

    assert context.params["config"] == file


def test_state_directory_open_to_others_is_found_with_its_command(copied: Installation) -> None:
    copied.state_dir.chmod(0o755)

    answer = examined(copied, exit_code=1)

    commands = [each["command"] for each in answer["findings"] if each["area"] == "permissions"]
    assert commands == [f"chmod 700 {copied.state_dir}"]
    subprocess.run(commands[0].split(), check=True)
    assert [each for each in examined(copied, exit_code=1)["findings"] if each["area"] == "permissions"] == []


def test_errors_in_the_log_are_findings_with_their_last_cause(tierd: Installation) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    event = {"timestamp": now, "level": "error", "event": "copy_failed", "partition": "orders-0", "error": "denied"}
    line = json.dumps(event)
    (tierd.root / "tierd.log").write_text(f"{line}\n{line}\n")

    answer = examined(tierd, "--offline", exit_code=1)

    (finding,) = [each for each in answer["findings"] if each["area"] == "log"]
    assert finding["problem"].startswith("copy_failed, 2 times in the last hour")
    assert finding["problem"].endswith("orders-0; denied")


def test_socket_names_the_daemon_whatever_the_file_says(tierd: Installation, log_dir: LogDirWriter) -> None:
    with tierd.daemon():
        elsewhere = WarmInstallation(tierd.root / "other", [log_dir.path], warm=tierd.warm)
        socket = str(tierd.state_dir / "control.sock")
        answer = examined(elsewhere, "--offline", "--socket", socket, exit_code=0)

    assert answer["daemon_answers"]
