"""``tierd`` as a command: its exit code and its output."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIERD = Path(sys.executable).parent / "tierd"
COMMAND_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a command."""

    exit_code: int
    stdout: str
    stderr: str

    def json(self) -> Any:  # noqa: ANN401 - JSON has any type
        """Return the whole output as one JSON value."""
        assert self.stdout, f"exit code {self.exit_code}: {self.stderr}"
        return json.loads(self.stdout)

    def json_lines(self) -> list[dict[str, Any]]:
        """Return the output as one JSON object a line."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def output(self) -> str:
        """Return both outputs, for messages that may be in either."""
        return self.stdout + self.stderr


def run_tierd(*arguments: str, deadline_s: float = COMMAND_DEADLINE_S, given: str = "") -> CommandResult:
    """Run ``tierd`` as a process of its own, which reads ``given`` from its standard input."""
    ended = subprocess.run(
        [str(TIERD), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    return CommandResult(ended.returncode, ended.stdout, ended.stderr)
