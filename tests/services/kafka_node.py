"""Process of a real Kafka cluster: broker and controller in one.

Start nodes from the main thread: the kernel ends them together with the thread that started them.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from tests.services.kafka_storage import KafkaStorage
from tests.services.ports import free_port
from tests.services.waiting import StillWaitingError, wait_until, wait_until_stopped

KAFKA_SCRIPT = Path(__file__).parent / "kafka" / "kafka.sh"
_ROOT = Path(__file__).parents[2]
START_DEADLINE_S = 90.0
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM  # exit code of Java


class KafkaUnavailableError(Exception):
    """Kafka cannot run on this machine; the message names the missing part."""


def require_kafka(version: str) -> None:
    """Fetch the jars of ``version`` unless they are there.

    Raises:
        KafkaUnavailableError: no Java, no Maven, or the jars could not be fetched.
    """
    for program, remedy in (("java", "install a Java 17 runtime"), ("setpriv", "install util-linux")):
        if shutil.which(program) is None:
            raise KafkaUnavailableError(f"{program} is not installed: {remedy}")
    fetched = subprocess.run(
        [str(KAFKA_SCRIPT), "libs"],
        env=kafka_environment({"KAFKA_VERSION": version}),
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        raise KafkaUnavailableError(
            f"Kafka {version} could not be fetched: {(fetched.stderr or fetched.stdout)[-500:]}"
        )
    _archive_classes(version)


@cache
def _archive_classes(version: str) -> None:
    """Write the archive with which brokers of ``version`` start in half the time, unless another run has written it."""
    settings = kafka_environment({"KAFKA_VERSION": version})
    named = subprocess.run([str(KAFKA_SCRIPT), "classes"], env=settings, capture_output=True, text=True, check=True)
    archive = Path(named.stdout.strip())
    with ExitStack() as stack, suppress(KafkaUnavailableError, StillWaitingError, OSError):  # brokers start without it
        lock = stack.enter_context((archive.parent / ".archive.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        written, lab_dir = archive.with_suffix(".new"), Path(stack.enter_context(tempfile.TemporaryDirectory()))
        node = KafkaNode(
            lab_dir, 1, version=version, nodes=1, first_port=free_ports(1), log_dirs=[lab_dir / "data"], properties={}
        )
        node.format()
        node.launch(KAFKA_JVM_FLAGS=f"-XX:ArchiveClassesAtExit={written}")
        try:
            node.wait_started()
        finally:
            node.signal(signal.SIGTERM)
            exit_code = node.wait_ended(deadline_s=START_DEADLINE_S)
        if exit_code == _ENDED_BY_SIGTERM:  # a killed process leaves a part of the archive
            written.rename(archive)


class KafkaNode:
    """Node ``number`` of a cluster: its folder, its port, its process."""

    def __init__(
        self,
        lab_dir: Path,
        number: int,
        *,
        version: str,
        nodes: int,
        first_port: int,
        log_dirs: Sequence[Path],
        properties: Mapping[str, str],
    ) -> None:
        self.number = number
        self.log_dirs = tuple(log_dirs)
        self.address = f"127.0.0.1:{first_port + 10 * (number - 1)}"
        self._server_log = lab_dir / f"node{number}" / "server.log"
        self._launches = 0
        self._environment = kafka_environment(
            {
                "KAFKA_VERSION": version,
                "KAFKA_LAB_DIR": str(lab_dir),
                "KAFKA_NODES": str(nodes),
                "KAFKA_PORT": str(first_port),
                "KAFKA_HEAP": "512m" if nodes == 1 else "320m",
                "KAFKA_DATA_DIRS": ",".join(map(str, self.log_dirs)),
                "KAFKA_PROPS": "\n".join(f"{name}={value}" for name, value in properties.items()),
            }
        )
        kind = (version, properties.get("process.roles", ""), self._environment.get("KAFKA_CLUSTER_ID", ""))
        self._storage = KafkaStorage(self.log_dirs, node=number, kind=kind)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Return True if the node was started and not ended; a frozen one runs."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self._process is not None, f"node {self.number} is not running"
        return self._process.pid

    def format(self) -> None:
        """Format the storage; a formatted storage stays unchanged."""
        self._server_log.parent.mkdir(parents=True, exist_ok=True)
        self._storage.format(self._run_format)

    def _run_format(self) -> None:
        command = [str(KAFKA_SCRIPT), "format", str(self.number)]
        formatted = subprocess.run(command, env=self._environment, check=False)
        assert formatted.returncode == 0, f"the storage of node {self.number} could not be formatted"

    def launch(self, **settings: str) -> None:
        """Start the process, with further settings of ``kafka.sh``; ``wait_started`` returns when the node serves.

        ``server.log`` is the output of this process. That of the process before is kept as ``server.log.N``, N from 0.
        """
        if self._server_log.exists():
            self._server_log.rename(self._server_log.with_name(f"server.log.{self._launches}"))
            self._launches += 1
        with self._server_log.open("wb") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(KAFKA_SCRIPT), "run", str(self.number)],
                env=self._environment | settings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_started(self) -> None:
        """Return when the node serves."""
        wait_until(self._has_started, what=f"node {self.number}", deadline_s=START_DEADLINE_S, last_seen=self._log_tail)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None, f"node {self.number} is not running"
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop the process; when this returns, none of its threads runs."""
        assert self._process is not None, f"node {self.number} is not running"
        self.signal(signal.SIGSTOP)
        wait_until_stopped(self._process.pid)

    def wait_ended(self, *, deadline_s: float = 30.0) -> int:
        """Wait until the process is gone, and kill it after the deadline; return the exit code."""
        assert self._process is not None, f"node {self.number} is not running"
        try:
            exit_code = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            exit_code = self._process.wait()
        self._process = None
        return exit_code

    def run_tool(self, name: str, *arguments: str) -> str:
        """Run a tool of Kafka against this node and return its output."""
        command = [str(KAFKA_SCRIPT), "tool", name, "--bootstrap-server", self.address, *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        return done.stdout

    def _has_started(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise KafkaUnavailableError(f"node {self.number} ended with {self._process.returncode}: {self._log_tail()}")
        return b"Kafka Server started" in self._server_log.read_bytes()

    def _log_tail(self) -> str:
        return self._server_log.read_text(errors="replace")[-2000:]


def free_ports(nodes: int) -> int:
    """Return the first of the ports of a cluster: those of clients ten apart, each controller's behind."""
    return free_port(1, *(10 * node + of for node in range(1, nodes) for of in (0, 1)))


def kafka_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of ``kafka.sh``, with its settings."""
    return {"KAFKA_LIBS_DIR": str(_ROOT / ".cache" / "kafka")} | dict(os.environ) | dict(settings)
