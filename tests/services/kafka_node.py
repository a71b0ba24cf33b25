"""Process of a real Kafka cluster: broker and controller in one.

Start nodes from the main thread: the kernel ends them together with the thread that started them.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.services.waiting import wait_until

_SCRIPT = Path(__file__).parent / "kafka" / "kafka.sh"
_ROOT = Path(__file__).parents[2]
START_DEADLINE_S = 90.0


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
        [str(_SCRIPT), "libs"],
        env=_environment({"KAFKA_VERSION": version}),
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        raise KafkaUnavailableError(
            f"Kafka {version} could not be fetched: {(fetched.stderr or fetched.stdout)[-500:]}"
        )


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
        self._environment = _environment(
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
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Return True if the node was started and not ended; a frozen one runs."""
        return self._process is not None

    def format(self) -> "subprocess.Popen[bytes]":
        """Begin to format the storage; a formatted storage stays unchanged."""
        return subprocess.Popen([str(_SCRIPT), "format", str(self.number)], env=self._environment)

    def launch(self) -> None:
        """Start the process; ``wait_started`` returns when the node serves."""
        with self._server_log.open("wb") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(_SCRIPT), "run", str(self.number)],
                env=self._environment,
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

    def wait_ended(self) -> None:
        """Return when the process is gone; after half a minute it is killed."""
        assert self._process is not None, f"node {self.number} is not running"
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def run_tool(self, name: str, *arguments: str) -> str:
        """Run a tool of Kafka against this node and return its output."""
        command = [str(_SCRIPT), "tool", name, "--bootstrap-server", self.address, *arguments]
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
    """Return the first of consecutive free ports of a cluster, which the nodes bind shortly afterwards."""
    while True:
        with ExitStack() as stack, suppress(OSError, OverflowError):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
            for offset in [1, *(10 * n + c for n in range(1, nodes) for c in (0, 1))]:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", first + offset))
            return first


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    return {"KAFKA_LIBS_DIR": str(_ROOT / ".cache" / "kafka")} | dict(os.environ) | dict(settings)
