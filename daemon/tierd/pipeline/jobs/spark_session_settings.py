"""Settings of the Spark session of a run; imports no pyspark, for the process that starts spark-submit."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tierd.config import PipelineSettings, is_on_this_host

PRIVATE_UMASK: Final = 0o077
WORKER_UMASK: Final = "TIERD_WORKER_UMASK"
"""Environment variable with the umask of tierd, for workers: the objects that they write get the modes of copies."""
_TASK_ATTEMPTS: Final = 4
_BRIEF_JAVA: Final = " ".join(
    (
        "-XX:+UseSerialGC",
        "-XX:Tier4InvocationThreshold=500000",
        "-XX:Tier4MinInvocationThreshold=60000",
        "-XX:Tier4CompileThreshold=1500000",
        "-XX:Tier4BackEdgeThreshold=4000000",
        "-XX:CompileCommand=quiet",
        "-XX:CompileCommand=CompileThresholdScaling,com.sun.crypto.provider.*::*,0.005",
    )
)
"""Options of a Java that runs for seconds, and only encrypts blocks and passes them on.

The serial collector suffices. The second compiler (tier 4) takes more processor time from the workers than it saves:
its thresholds are a hundred times the default ones. For ciphers alone they are lower, since AES instructions of the
processor are used in code of the second compiler only; other code of AES runs at some 70 MB/s.
"""
_CORES = re.compile(r"local(\[(?P<cores>[^\],]+)\])?")
_SOCKET_NAME_BYTES: Final = 43  # "/." and a UUID and ".sock"
_SOCKET_ADDRESS_BYTES: Final = 104  # Spark's limit, a little below that of Linux: it refuses a longer directory
_UMASK = re.compile(r"^Umask:\s*([0-7]+)$", re.MULTILINE)


def spark_settings(settings: PipelineSettings, scratch: Path) -> dict[str, str]:
    """Return the properties of the session, those of ``spark_conf`` last. They may hold a secret.

    Shuffled blocks are hashes, which no compression makes smaller. A local master gets as many attempts per task as a
    cluster; by default it would give up a whole job with its first worker that is killed.

    Args:
        settings: of the pipeline.
        scratch: directory of Spark's files; on a cluster only of the driver's files.
    """
    settled = {
        "spark.master": settings.master,
        "spark.app.name": "tierd",
        "spark.driver.memory": _mebibytes(settings.driver_memory_bytes),
        "spark.executor.memory": _mebibytes(settings.executor_memory_bytes),
        "spark.local.dir": str(scratch),
        "spark.log.level": "WARN",
        "spark.pyspark.driver.python": sys.executable,  # spark.pyspark.python, that of the executors, would be next
        "spark.python.daemon.module": "tierd.pipeline.jobs.worker_daemon",
        "spark.python.worker.reuse": "true",
        "spark.shuffle.compress": "false",
        "spark.speculation": "false",
        "spark.task.maxFailures": str(_TASK_ATTEMPTS),
        "spark.ui.showConsoleProgress": "false",
    }
    return settled | _local_settings(settings.master, scratch) | settings.protected_conf()


def spark_environment(master: str) -> dict[str, str]:
    """Return variables for Java's environment; with all of Spark on this host, it listens on the loopback address."""
    return {"SPARK_LOCAL_IP": "127.0.0.1"} if is_on_this_host(master) else {}


def process_umask() -> int:
    """Return the umask of this process. The system call for it would change the umask for other threads."""
    found = _UMASK.search(Path("/proc/self/status").read_text(encoding="ascii", errors="replace"))
    return int(found[1], 8) if found else PRIVATE_UMASK


def _local_settings(master: str, scratch: Path) -> dict[str, str]:
    """Return the settings of a session that is on this host as a whole.

    Workers talk over sockets in a directory of ours: over TCP every task would wait 40 ms for a delayed
    acknowledgement. A cluster keeps TCP, where a token guards what the modes of files on foreign hosts might not.
    """
    if not is_on_this_host(master):
        return {}
    settled = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": _BRIEF_JAVA,
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if (local := _CORES.fullmatch(master)) is not None:
        settled["spark.master"] = f"local[{local['cores'] or 1},{_TASK_ATTEMPTS}]"
    if len(os.fsencode(scratch)) + _SOCKET_NAME_BYTES <= _SOCKET_ADDRESS_BYTES:  # else in /tmp, for the owner alone
        settled["spark.python.unix.domain.socket.dir"] = str(scratch)
    return settled


def _mebibytes(size_bytes: int) -> str:
    """Format the size of a heap for Java, in mebibytes, since Java has no suffix for bytes."""
    return f"{size_bytes >> 20}m"


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Write ``settings`` as Java's properties, for ``spark-submit --properties-file``. Blocking.

    Raises:
        OSError: the file cannot be written.
    """
    lines = "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(lines)


def _escaped(text: str) -> str:
    """Escape text for Java's properties: ASCII, with the characters escaped that separate or continue lines."""
    escaped = "".join(f"\\{c}" if c in "\\:=#! " else c for c in text)
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "".join(c if c.isascii() else "".join(f"\\u{unit:04x}" for unit in _utf16(c)) for c in escaped)


def _utf16(character: str) -> list[int]:
    encoded = character.encode("utf-16-be")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
