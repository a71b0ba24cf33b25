"""tierd as an operator uses it: a configuration file, the ``tierd`` command beside this Python, and its daemon."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.scenarios.command import COMMAND_DEADLINE_S, TIERD, CommandResult, run_tierd
from tests.scenarios.warm_daemons import ForkedDaemon
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.ports import free_port
from tests.services.waiting import wait_until

READY_DEADLINE_S = 120.0  # imports alone took half a minute while other suites used both cores
STOP_DEADLINE_S = 40.0

Settings = dict[str, Any]  # values of YAML: nested mappings


class Installation:
    """Configuration with a state dir and a status port of its own.

    Intervals are short for tests; ``settings`` is merged over them, section by section.
    """

    def __init__(
        self,
        root: Path,
        log_dirs: Sequence[Path],
        *,
        remote: Settings | None = None,
        settings: Settings | None = None,
        warm: WarmTierd | None = None,
    ) -> None:
        """Write the configuration; ``warm`` forks daemons and the commands of which only the outcome matters."""
        self.warm = warm
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.state_dir = root / "state"
        self.store_dir = root / "store"
        self.config_file = root / "tierd.yaml"
        self.http = f"127.0.0.1:{free_port()}"
        self.settings: Settings = {
            "state_dir": str(self.state_dir),
            "log_dirs": [{"path": str(path), "owner": "kafka"} for path in log_dirs],
            "remote": remote or {"backend": "filesystem", "filesystem": {"path": str(self.store_dir)}},
            "copy": {"interval": "500ms", "reconcile_interval": "2s", "dangling_grace": "0s"},
            "http": {"listen": self.http},
        }
        self.configure(settings or {})

    def configure(self, settings: Settings) -> None:
        """Merge ``settings`` into the configuration and write the file (JSON is YAML)."""
        self.settings = _merged(self.settings, settings)
        self.config_file.write_text(json.dumps(self.settings, indent=2))

    def tierd(self, *arguments: str, deadline_s: float = COMMAND_DEADLINE_S) -> CommandResult:
        """Run one command with this configuration."""
        return run_tierd(*self._with_config(arguments), deadline_s=deadline_s)

    def ask(self, *arguments: str) -> CommandResult:
        """Run a command of which only the outcome matters: forked from a warm process, if there is one."""
        return (self.warm.run if self.warm else run_tierd)(*self._with_config(arguments))

    def segments(self, partition: str) -> list[dict[str, Any]]:
        """Return the output of ``tierd segments --json``."""
        result = self.ask("segments", partition, "--json")
        assert result.exit_code == 0, result.output
        listed: list[dict[str, Any]] = result.json()
        return listed

    def frontier(self, partition: str) -> int:
        """Return the last offset of the unbroken run of finished remote segments, -1 for none."""
        return contiguous_end(self.segments(partition))

    def cat(self, partition: str, *options: str) -> list[dict[str, Any]]:
        """Return the output of ``tierd cat --json`` over the whole history."""
        result = self.ask("cat", partition, "--json", *options)
        assert result.exit_code == 0, result.output
        return result.json_lines()

    def _with_config(self, arguments: Sequence[str]) -> list[str]:
        return [*arguments, "--config", str(self.config_file)]

    def daemon(self, *, command: Sequence[str] | None = None, verb: Sequence[str] = ("run",)) -> "Daemon":
        """Return the daemon of this installation, not yet started; ``command`` replaces ``tierd``."""
        return Daemon(self, command, verb=verb)


class Daemon:
    """``tierd run`` as a child process; as a context manager it is ready inside and stopped cleanly at the end."""

    def __init__(
        self, installation: Installation, command: Sequence[str] | None, *, verb: Sequence[str] = ("run",)
    ) -> None:
        self._installation = installation
        self._verb = verb
        self._command = command
        self.log_file = installation.root / "tierd.log"
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | ForkedDaemon | None = None

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if error is not None:
            self.kill()
        else:
            assert self.stop() == 0, f"the daemon did not end cleanly: {self.log_tail()}"

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self._process is not None, "the daemon is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return True if the process was started and not ended by the test; a frozen one runs."""
        return self._process is not None

    def start(self) -> None:
        """Start the process and return at once. The log is appended to ``log_file``."""
        arguments = [*self._verb, "--config", str(self._installation.config_file)]
        if (warm := self._installation.warm) is not None:
            match self._command:
                case None:
                    self._process = warm.daemons.start(arguments, self.log_file)
                    return
                case (sys.executable, "-m", module, *first):
                    self._process = warm.daemons.start([*first, *arguments], self.log_file, module=module)
                    return
        self._log = self.log_file.open("ab")
        self._process = subprocess.Popen(
            [*(self._command or (str(TIERD),)), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def wait_ready(self, *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Return when ``/readyz`` answers ready."""
        self.wait_until(self.is_ready, what="the daemon to be ready", deadline_s=deadline_s)

    def is_ready(self) -> bool:
        """Return the answer of ``/readyz``; False without a listener."""
        return self._answers("/readyz")

    def is_alive(self) -> bool:
        """Return the answer of ``/livez``; False without a listener."""
        return self._answers("/livez")

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._end(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send any other signal."""
        assert self._process is not None, "the daemon is not running"
        self._process.send_signal(number)

    def reload(self) -> None:
        """Send SIGHUP; return when the daemon has read the file and applied it."""
        taken = self._reloads()
        self.send_signal(signal.SIGHUP)
        self.wait_until(lambda: self._reloads() > taken, what="the reload to be applied")

    def _reloads(self) -> int:
        return self.log_file.read_text(errors="replace").count('"config_reloaded"')

    def wait_end(self, *, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Wait until the daemon ends by itself; return the exit code."""
        assert self._process is not None, "the daemon is not running"
        exit_code = self._process.wait(deadline_s)
        self._forget()
        return exit_code

    def get(self, path: str) -> str:
        """Return the body of a GET of the status endpoint, for any status code."""
        try:
            with urllib.request.urlopen(f"http://{self._installation.http}{path}", timeout=5) as reply:
                body: bytes = reply.read()
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
        return body.decode()

    def status(self) -> dict[str, Any]:
        """Return the body of ``/status``."""
        answer: dict[str, Any] = json.loads(self.get("/status"))
        return answer

    def partition(self, name: str) -> dict[str, Any] | None:
        """Return the entry of one partition in ``/status``, None if it is not listed."""
        listed = self.status()["partitions"]
        return next((entry for entry in listed if entry["partition"] == name), None)

    def metrics(self) -> dict[str, float]:
        """Return every sample of ``/metrics``: name with labels, as printed, and value."""
        lines = (line.rpartition(" ") for line in self.get("/metrics").splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def wait_until(self, condition: Any, *, what: str, deadline_s: float = READY_DEADLINE_S) -> None:  # noqa: ANN401
        """Wait for a condition; fail at once when the process ends."""

        def holds() -> bool:
            if self._process is None or self._process.poll() is not None:
                raise AssertionError(f"the daemon ended while waiting for {what}: {self.log_tail()}")
            return bool(condition())

        wait_until(holds, what=what, deadline_s=deadline_s, last_seen=self._last_seen)

    def wait_copied(self, wanted: Mapping[str, int], *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until every named partition is in the tier up to its offset, inclusive."""

        def copied() -> bool:
            frontier = {entry["partition"]: entry["copied_through"] for entry in self.status()["partitions"]}
            return all(frontier.get(name, -1) >= offset for name, offset in wanted.items())

        self.wait_until(copied, what=f"the tier to reach {dict(wanted)}", deadline_s=deadline_s)

    def log_tail(self) -> str:
        """Return the end of the log of the daemon."""
        return self.log_file.read_text(errors="replace")[-4000:] if self.log_file.exists() else ""

    def _last_seen(self) -> str:
        try:
            status = self.get("/status")
        except OSError as error:
            status = f"no status: {error}"
        return f"{status[:3000]}\n{self.log_tail()}"

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._installation.http}{path}", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None, "the daemon is not running"
        self._process.send_signal(number)
        try:
            exit_code = self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)
            raise AssertionError(f"the daemon did not end on {number.name}: {self.log_tail()}") from None
        finally:
            self._forget()
        return exit_code

    def _forget(self) -> None:
        self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None


def contiguous_end(segments: Sequence[Mapping[str, Any]]) -> int:
    """Return the last offset of the unbroken run of finished segments from the first one on, -1 for none."""
    finished = sorted(
        (segment for segment in segments if segment["state"] == "COPY_SEGMENT_FINISHED"),
        key=lambda s: s["start_offset"],
    )
    end = -1
    for segment in finished:
        if end >= 0 and segment["start_offset"] > end + 1:
            break
        end = max(end, segment["end_offset"])
    return end


def _merged(base: Settings, over: Settings) -> Settings:
    merged = dict(base)
    for key, value in over.items():
        present = merged.get(key)
        merged[key] = _merged(present, value) if isinstance(value, dict) and isinstance(present, dict) else value
    return merged
