"""SparkProcess: runs one spark-submit with everything that it starts, in a process group of its own."""

import asyncio
import contextlib
import errno
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from tierd.config import PipelineSettings
from tierd.errors import PipelineError
from tierd.masking import masked
from tierd.pipeline.jobs.spark_session_settings import (
    PRIVATE_UMASK,
    WORKER_UMASK,
    process_umask,
    spark_environment,
    spark_settings,
    write_properties,
)
from tierd.pipeline.running.requirements import SparkInstallation

ENTRY: Final = Path(__file__).parents[1] / "jobs" / "__main__.py"
_LOG_TAIL_BYTES: Final = 16384  # the trace of a Java exception is some kilobytes long
_FRAME: Final = re.compile(r"\s*(at \S+\(.*\)|\.\.\. \d+ (more|common frames omitted))\s*$")
_PRIVATELY: Final = ("/bin/sh", "-c", f'umask {PRIVATE_UMASK:03o} && exec "$@"', "sh")
"""Command that sets the umask of the job, whose files are for its owner alone; uvloop cannot set a child's umask."""
_IO_CLASSES: Final = {"best-effort": ("-c", "2", "-n", "7"), "idle": ("-c", "3")}


class JobProcess(Protocol):
    """Job that can be started; tests have one without Spark."""

    async def run(self, socket: Path, log_file: Path, *, stop_timeout_s: float) -> int:
        """Start the job for the leader on ``socket`` and return its exit code.

        A cancelled call asks the job to stop, kills it after ``stop_timeout_s``, and leaves no process behind.

        Raises:
            PipelineError: the job cannot be started.
        """


class SparkProcess:
    """Job on Spark, by the settings of the pipeline."""

    def __init__(
        self, settings: PipelineSettings, spark: SparkInstallation, *, config_file: Path, scratch: Path
    ) -> None:
        """Prepare to start jobs.

        Args:
            settings: of the pipeline.
            spark: the installation of Spark and Java.
            config_file: configuration, which the job reads again, for the stores.
            scratch: an own directory of the run, which need not exist yet.
        """
        self._settings = settings
        self._spark = spark
        self._config_file = config_file
        self._scratch = scratch

    async def run(self, socket: Path, log_file: Path, *, stop_timeout_s: float) -> int:
        """Run ``spark-submit`` with its output in ``log_file``; see ``JobProcess``."""
        process = await self._started(socket, log_file)
        try:
            return await process.wait()
        finally:
            await _to_its_end(asyncio.create_task(_end(process, stop_timeout_s), name=f"end job {process.pid}"))

    async def _started(self, socket: Path, log_file: Path) -> asyncio.subprocess.Process:
        try:
            properties = await asyncio.to_thread(self._prepare)
            log = await asyncio.to_thread(open, log_file, "ab", opener=_owner_only)
        except OSError as error:
            raise PipelineError(
                f"the job cannot be started: {error}", remedy="check pipeline.local_dir and its disk"
            ) from error
        command = submit_command(
            self._settings, self._spark, properties=properties, socket=socket, config_file=self._config_file
        )
        try:
            await asyncio.to_thread(_require_executable, self._spark.submit)
            return await asyncio.create_subprocess_exec(
                *_PRIVATELY,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise PipelineError(
                f"{self._spark.submit} cannot be run: {error.strerror}", remedy="see tierd check-config"
            ) from error
        finally:
            log.close()

    def _prepare(self) -> Path:
        """Write the properties into a file for the owner alone, since arguments show in the list of processes."""
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._scratch / "spark.properties"
        write_properties(path, spark_settings(self._settings, self._scratch))
        return path

    def _environment(self) -> Mapping[str, str]:
        own = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        own |= {"SPARK_HOME": str(self._spark.home), "SPARK_LOCAL_DIRS": str(self._scratch)}
        own |= {WORKER_UMASK: f"{process_umask():o}", **spark_environment(self._settings.master)}
        if self._spark.java_home is not None:
            own["JAVA_HOME"] = str(self._spark.java_home)
        return {**os.environ, **own}


def submit_command(
    settings: PipelineSettings, spark: SparkInstallation, *, properties: Path, socket: Path, config_file: Path
) -> Sequence[str]:
    """Return the command line of a job; ``nice`` and ``ionice`` go first where they are set and installed."""
    command: list[str] = []
    if settings.nice and (nice := shutil.which("nice")):
        command += [nice, "-n", str(settings.nice)]
    if settings.io_class in _IO_CLASSES and (ionice := shutil.which("ionice")):
        command += [ionice, *_IO_CLASSES[settings.io_class]]
    command += [str(spark.submit), "--properties-file", str(properties), str(ENTRY)]
    return [*command, "--leader", str(socket), "--config", str(config_file)]


def last_lines(log_file: Path, *, lines: int = 3) -> str:
    """Return the last lines of a log that are not blank, masked, for an error; empty without any. Blocking.

    The frames of Java traces are left out, because they do not help an operator.
    """
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            tail = file.read().decode(errors="replace")
    except OSError:
        return ""
    shown = [line.strip() for line in tail.splitlines() if line.strip() and not _FRAME.match(line)]
    return masked(" | ".join(shown[-lines:]))


def _require_executable(path: Path) -> None:
    """Require that ``path`` can be run: the shell would report a failure in the log alone.

    Raises:
        OSError: ``path`` cannot be run.
    """
    if not os.access(path, os.X_OK):
        missing = errno.EACCES if path.exists() else errno.ENOENT
        raise OSError(missing, os.strerror(missing))


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


async def _to_its_end(ending: "asyncio.Task[None]") -> None:
    """Wait for ``ending``. A cancellation cancels ``ending``, which kills the job at once, and waits for its end."""
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        ending.cancel()
        await asyncio.wait([ending])
        raise


async def _end(process: asyncio.subprocess.Process, stop_timeout_s: float) -> None:
    """Ask the process group to stop, then kill its remaining processes. A cancelled call kills the group at once."""
    try:
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), stop_timeout_s)
    finally:
        _signal(process.pid, signal.SIGKILL)  # workers may outlive the process that was started here
        await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
