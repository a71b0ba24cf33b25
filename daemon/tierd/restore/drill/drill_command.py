"""DrillCommand: runs ``drill.command`` on a restored log dir, with a deadline, in a process group of its own."""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tierd.masking import Masking

_OUTPUT_BYTES: Final = 4096  # of the end, which says why it failed
_READ_BYTES: Final = 64 << 10
_STOP_S: Final = 10.0
_LAST_OUTPUT_S: Final = 2.0
_PASSED_ON: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME")
"""Variables that the command gets of tierd's environment, which may have secrets of the stores."""
_WATCHED: Final = (
    "/bin/sh",
    "-c",
    """(trap '' HUP INT TERM; { while read -r _; do :; done; kill -KILL 0; } <&3 >/dev/null 2>&1 &) 3<&0
    exec "$@" </dev/null""",
    "sh",
)
"""Command that runs its arguments beside a watcher in the same process group.

The watcher reads a pipe whose other end tierd alone has. The pipe ends with tierd, also if SIGKILL ended it, and then
the watcher kills the group. It is no child of the command, which may wait for all of its children.
"""


class CommandFailure(NamedTuple):
    """Failure of the command, and the end of its output, masked."""

    problem: str
    output: str = ""


class DrillCommand:
    """Command of the operator that proves a restored log dir, as by starting a broker on it.

    Args:
        command: program and arguments; no shell reads them. The log dir follows as one more, and the partition if it is
            the only one.
        timeout_s: time after which it is ended, which counts as a failure.
        masking: masks its output.
    """

    def __init__(self, command: Sequence[str], *, timeout_s: float, masking: Masking) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._masking = masking

    async def run(self, log_dir: Path, partition: str | None, facts: Mapping[str, str]) -> CommandFailure | None:
        """Run it to its end; return None if it ended with 0, else its failure.

        A cancelled call leaves no process behind, and neither does a deadline nor the death of this process: the whole
        process group is ended.

        Args:
            log_dir: the restored log dir, which the command may change; the working directory is the one around it.
            partition: name of the one partition in it; None where the log dir is that of a broker.
            facts: go into the environment, each with ``TIERD_DRILL_`` before its name.
        """
        arguments = (*self._command, str(log_dir), *(() if partition is None else (partition,)))
        environment = _environment(log_dir, partition, facts)
        watched, lifeline = os.pipe()
        try:
            return await self._run(arguments, environment, log_dir.parent, watched)
        finally:
            os.close(watched)
            os.close(lifeline)

    async def _run(
        self, arguments: Sequence[str], environment: Mapping[str, str], directory: Path, watched: int
    ) -> CommandFailure | None:
        try:
            _require_program(arguments[0], environment, directory)
            process = await asyncio.create_subprocess_exec(
                *_WATCHED,
                *arguments,
                stdin=watched,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        except OSError as error:
            return CommandFailure(f"drill.command {self._command[0]} cannot be run: {error.strerror}")
        assert process.stdout is not None, "it is a pipe"
        output = bytearray()
        reading = asyncio.create_task(_read_end(process.stdout, output), name=f"output of {process.pid}")
        try:
            problem = await self._problem(process)
            await _end(process)
            await asyncio.wait({reading}, timeout=_LAST_OUTPUT_S)  # a process that left the group may hold the pipe
        finally:
            await _end(process)
            reading.cancel()
        if not problem:
            return None
        return CommandFailure(problem, self._masking.text(output.decode(errors="replace").strip()))

    async def _problem(self, process: asyncio.subprocess.Process) -> str:
        """Wait for the end, and return what was wrong with it; empty if nothing was."""
        try:
            async with asyncio.timeout(self._timeout_s):
                code = await process.wait()
        except TimeoutError:
            return f"drill.command did not end in {self._timeout_s:g} s"
        if code < 0:
            return f"drill.command was ended by {signal.Signals(-code).name}"
        return f"drill.command ended with exit code {code}" if code else ""


def _require_program(program: str, environment: Mapping[str, str], directory: Path) -> None:
    """Require that a program can be run: the shell would report a failure in the output alone.

    Raises:
        OSError: it cannot be run.
    """
    path = directory / program
    is_found = os.access(path, os.X_OK) if "/" in program else shutil.which(program, path=environment.get("PATH"))
    if not is_found:
        missing = errno.EACCES if "/" in program and path.exists() else errno.ENOENT
        raise OSError(missing, os.strerror(missing))


async def _read_end(stream: asyncio.StreamReader, output: bytearray) -> None:
    """Read to the end and keep the last bytes in ``output``."""
    while piece := await stream.read(_READ_BYTES):
        output += piece
        del output[:-_OUTPUT_BYTES]


def _environment(log_dir: Path, partition: str | None, facts: Mapping[str, str]) -> dict[str, str]:
    own = {"TIERD_DRILL_LOG_DIR": str(log_dir)}
    if partition is not None:
        own["TIERD_DRILL_PARTITION"] = partition
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed_on, **own, **{f"TIERD_DRILL_{name}": value for name, value in facts.items()}}


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the process group to stop, then kill what is left of it. A cancelled call kills it at once."""
    try:
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
    finally:
        _signal(process.pid, signal.SIGKILL)  # its children may outlive it
        await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
