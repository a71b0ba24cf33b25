"""BashSession: one shell that runs the commands of a page in their order."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.services.waiting import is_readable

_DEADLINE_S: Final = 120.0


class ShellResult(NamedTuple):
    """End of one command; ``output`` has both streams."""

    exit_code: int
    output: str


class BashSession:
    """Shell whose variables, directory and jobs live from command to command. A context manager."""

    def __init__(self, scratch: Path, *, folder: Path, environment: Mapping[str, str]) -> None:
        """Start the shell in ``folder``; ``scratch`` gets the texts and the output of the commands."""
        self._script, self._output = scratch / "command.sh", scratch / "output"
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            bufsize=0,
        )

    def run(self, text: str) -> ShellResult:
        """Run one command to its end.

        Raises:
            AssertionError: the command did not end before the deadline, or it ended the shell.
        """
        self._script.write_text(f"{text}\n")
        self._output.write_bytes(b"")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f". {self._script} < /dev/null >> {self._output} 2>&1; echo $?\n".encode())
        if not is_readable(self._process.stdout, deadline_s=_DEADLINE_S):
            raise AssertionError(f"{text} has not ended after {_DEADLINE_S:g} s: {self._output.read_text()}")
        answer = self._process.stdout.read(16)
        assert answer, f"{text} has ended the shell: {self._output.read_text()}"
        return ShellResult(int(answer), self._output.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # with every job that it has left
        self._process.communicate()
