"""``drill.command``: no shell, a deadline, nothing left behind, and an output without secrets."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.services.waiting import is_alive
from tierd.masking import Masking
from tierd.restore.drill.drill_command import CommandFailure, DrillCommand


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    (tmp_path / "log-dir").mkdir()
    return tmp_path / "log-dir"


async def run(log_dir: Path, script: str, *, timeout_s: float = 30.0, secret: str = "") -> CommandFailure | None:
    command = DrillCommand((sys.executable, "-c", script), timeout_s=timeout_s, masking=Masking(secret or None))
    return await command.run(log_dir, "orders-0", {"END_OFFSET": "12"})


async def test_command_gets_log_dir_partition_and_facts_but_not_the_secrets_of_the_environment(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the daemon")
    script = "import json,os,sys; open('said','w').write(json.dumps([sys.argv[1:], dict(os.environ)]))"
    assert await run(log_dir, script) is None
    arguments, environment = json.loads((log_dir.parent / "said").read_text())
    assert arguments == [str(log_dir), "orders-0"]
    assert environment["TIERD_DRILL_LOG_DIR"] == str(log_dir)
    assert (environment["TIERD_DRILL_PARTITION"], environment["TIERD_DRILL_END_OFFSET"]) == ("orders-0", "12")
    assert "AWS_SECRET_ACCESS_KEY" not in environment


async def test_words_of_a_shell_have_no_meaning(log_dir: Path) -> None:
    command = DrillCommand(("/bin/echo", "$(touch made)", ";", "touch made"), timeout_s=30, masking=Masking())
    assert await command.run(log_dir, "orders-0", {}) is None
    assert not (log_dir.parent / "made").exists()


async def test_failure_has_the_exit_code_and_the_end_of_the_output(log_dir: Path) -> None:
    script = "import sys; print('x' * 100_000); print('no leader', file=sys.stderr); sys.exit(3)"
    failure = await run(log_dir, script)
    assert failure is not None
    assert failure.problem == "drill.command ended with exit code 3"
    assert failure.output.endswith("no leader")
    assert len(failure.output) <= 4096


async def test_secrets_in_the_output_are_masked(log_dir: Path) -> None:
    script = "print('with hunter2-of-the-store and password=abc123'); raise SystemExit(1)"
    failure = await run(log_dir, script, secret="hunter2-of-the-store")
    assert failure is not None
    assert failure.output == "with ******** and password=********"


async def test_command_that_a_signal_ended_is_a_failure(log_dir: Path) -> None:
    failure = await run(log_dir, "import os; os.kill(os.getpid(), 9)")
    assert failure == CommandFailure("drill.command was ended by SIGKILL")


async def test_command_that_cannot_be_run_is_a_failure(log_dir: Path) -> None:
    missing = DrillCommand(("/no/such/program",), timeout_s=30, masking=Masking())
    failure = await missing.run(log_dir, "orders-0", {})
    assert failure == CommandFailure("drill.command /no/such/program cannot be run: No such file or directory")


HANGS = (
    "import pathlib,subprocess,sys,time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "pathlib.Path('child.tmp').write_text(str(child.pid))\n"
    "pathlib.Path('child.tmp').rename('child')\n"
    "print('waiting', flush=True)\n"
    "time.sleep(600)\n"
)


async def test_command_that_outlives_its_deadline_is_ended_with_its_children(log_dir: Path) -> None:
    failure = await run(log_dir, HANGS, timeout_s=2.0)
    assert failure == CommandFailure("drill.command did not end in 2 s", "waiting")
    child = int((log_dir.parent / "child").read_text())
    await eventually(lambda: not is_alive(child), what="the end of the child")


async def test_cancelled_command_is_ended_with_its_children(log_dir: Path) -> None:
    running = asyncio.create_task(run(log_dir, HANGS))
    await eventually((log_dir.parent / "child").exists, what="the child to be there")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    child = int((log_dir.parent / "child").read_text())
    await eventually(lambda: not is_alive(child), what="the end of the child")
