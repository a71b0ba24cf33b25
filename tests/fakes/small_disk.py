"""SmallDisk: a file system of some kilobytes that tests fill; it is memory, in a mount namespace of its own."""

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

_NOT_PERMITTED: Final = 99
_MARK: Final = "exit-code "


@dataclass(frozen=True, slots=True)
class Story:
    """The output of the commands of a story, and the exit code of each."""

    exit_codes: list[int]
    lines: list[str]  # lines of standard output
    output: str


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """An empty directory that is a disk of ``size_kib`` for the commands of a story only."""

    directory: Path
    size_kib: int

    def tell(self, *commands: Sequence[str | Path], then_with_room: Sequence[Sequence[str | Path]] = ()) -> Story:
        """Run commands one after the other, the last ones after the disk was made a large one.

        No root is needed and no mount stays; the test is skipped where mounts are not permitted.
        """
        disk = shlex.quote(str(self.directory))
        steps = [
            f"mount -t tmpfs -o size={self.size_kib}k none {disk} || exit {_NOT_PERMITTED}",
            *map(_step, commands),
            f"mount -o remount,size=64m {disk}",
            *map(_step, then_with_room),
        ]
        told = subprocess.run(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", "\n".join(steps)],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode == _NOT_PERMITTED or "unshare failed" in told.stderr:
            pytest.skip("mounting a small file system is not permitted here")
        said = told.stdout.splitlines()
        return Story(
            exit_codes=[int(line.removeprefix(_MARK)) for line in said if line.startswith(_MARK)],
            lines=[line for line in said if not line.startswith(_MARK)],
            output=told.stdout + told.stderr,
        )


def _step(command: Sequence[str | Path]) -> str:
    return f"{shlex.join(map(str, command))}; echo {_MARK}$?"
