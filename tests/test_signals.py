"""Signals of the processes that tests start: Ctrl-C reaches them, also where pytest is a job in the background."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_child_of_a_test_is_ended_by_sigint() -> None:
    # Not an interpreter: it loses a signal that arrives between its last look at its flags and the start of a blocking
    # call. The kernel ends the child ``sleep``, and Popen returns after exec, so that no signal is lost.
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=60) == -signal.SIGINT
        finally:
            child.kill()


def test_child_of_a_test_is_ended_by_sigint_when_pytest_inherited_it_ignored() -> None:
    test = f"{Path(__file__)}::{test_child_of_a_test_is_ended_by_sigint.__name__}"
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *pytest]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
