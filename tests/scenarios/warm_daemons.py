"""Process that has imported tierd and forks for every daemon, for stories that start daemons many times.

Each daemon is a process of its own, as ``tierd run`` makes it, but without the second of the import. Run as a script,
this module is that process; imported, it is the client of a test.
"""

import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.services.waiting import StillWaitingError, wait_until

_DEADLINE_S: Final = 300.0  # far more than an import needs, on a busy machine too
_IMPORTED_ON_DEMAND: Final = (
    "cryptography.hazmat.primitives.ciphers.aead",
    "obstore.store",
    "tierd.app.daemon.daemon",
    "tierd.control.cluster_topics",
    "tierd.control.kafka",
    "tierd.control.topic_configs",
    "tierd.log.dirs.log_manager",
    "tierd.log.log_service",
    "tierd.metadata.kv.postgres_schema",
    "tierd.metadata.kv.redis_connections",
    "tierd.remote.backends.files",
    "tierd.remote.backends.s3",
)
"""Modules that a process imports only with the settings that need them."""


class WarmDaemons:
    """Parent of daemons, which end with it at the latest."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tierd-daemons-")
        self._started = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.warm_daemons"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )

    def start(self, arguments: Sequence[str], log_file: Path, *, module: str = "tierd.cli") -> "ForkedDaemon":
        """Start a module, by default ``tierd``, with arguments and the environment of this process.

        Its output goes to ``log_file``.
        """
        assert self._process.stdin is not None
        log_file.touch()  # for a test that reads it before the daemon has opened it
        self._started += 1
        name = Path(self._folder.name, str(self._started))
        order: dict[str, object] = {"module": module, "arguments": arguments, "log": str(log_file), "name": str(name)}
        order["environment"] = dict(os.environ)
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        born = name.with_suffix(".pid")
        wait_until(born.exists, what="a daemon to be forked", deadline_s=_DEADLINE_S, interval_s=0.002)
        return ForkedDaemon(list(arguments), int(born.read_text()), name.with_suffix(".exit"))

    def close(self) -> None:
        """Kill all daemons, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_DEADLINE_S)
        self._folder.cleanup()


class ForkedDaemon:
    """Running daemon, in the words of ``subprocess.Popen``; the parent of daemons reports its exit code in a file."""

    def __init__(self, arguments: list[str], pid: int, exit_file: Path) -> None:
        self.pid = pid
        self._arguments = arguments
        self._exit_file = exit_file

    def poll(self) -> int | None:
        """Return the exit code, minus the number of the signal that ended the process; None while it runs."""
        return int(self._exit_file.read_text()) if self._exit_file.exists() else None

    def wait(self, timeout: float) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: the process runs after ``timeout`` seconds.
        """
        try:
            wait_until(self._exit_file.exists, what="the daemon to end", deadline_s=timeout, interval_s=0.005)
        except StillWaitingError as error:
            raise subprocess.TimeoutExpired(self._arguments, timeout) from error
        return int(self._exit_file.read_text())

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self.send_signal(signal.SIGKILL)


def import_tierd(*verbs: str) -> Callable[[], None]:
    """Import ``tierd`` with some of its commands; return its entry point."""
    main: Callable[[], None] = importlib.import_module("tierd.cli").main
    for module in (*(f"tierd.cli.commands.{verb}" for verb in verbs), *_IMPORTED_ON_DEMAND):
        importlib.import_module(module)
    app = importlib.import_module("tierd.app")
    for name in app.__all__:
        getattr(app, name)  # its module is imported with the first use
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork has only the thread that forked"
    return main


def exit_code(main: Callable[[], object]) -> int:
    """Run the entry point to its end, as an interpreter does; return the exit code."""
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter does at its end
        traceback.print_exc()
        return 1
    else:
        return 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def become(arguments: Sequence[str], *, read: str, out: str, err: str) -> None:
    """Take the arguments of a command, files in place of the standard streams, and random numbers of its own."""
    random.seed()
    sys.argv = ["tierd", *arguments]
    for name, descriptor in ((read, 0), (out, 1), (err, 2)):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(name, flags, 0o600), descriptor)


def _serve() -> None:
    """Fork a daemon for every line of standard input, and report the exit code of each; at its end, kill the others."""
    main = import_tierd("run")
    gc.collect()
    gc.freeze()  # otherwise the first collection in every daemon would copy all these pages
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    ready = select.poll()
    ready.register(sys.stdin, select.POLLIN)
    ready.register(woken, select.POLLIN)
    running: dict[int, Path] = {}
    while True:
        readable = {number for number, _ in ready.poll()}
        if woken in readable:
            os.read(woken, 4096)
            _report_ended(running)
        if sys.stdin.fileno() in readable:
            if not (line := sys.stdin.readline()):
                break
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                os.close(woken)
                os.close(wakes)
                os._exit(_live(main, order))
            running[pid] = Path(order["name"])
            _write(running[pid].with_suffix(".pid"), pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _live(main: Callable[[], None], order: dict[str, Any]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(order["environment"])
    become(order["arguments"], read=os.devnull, out=order["log"], err=order["log"])
    if order["module"] == "tierd.cli":
        return exit_code(main)
    return exit_code(lambda: runpy.run_module(order["module"], run_name="__main__", alter_sys=True))


def _report_ended(running: dict[int, Path]) -> None:
    """Write the exit codes of daemons that have ended. Until then their process ids belong to no other process."""
    while running and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        _write(running.pop(ended.si_pid).with_suffix(".exit"), code)
        os.waitpid(ended.si_pid, 0)


def _write(file: Path, number: int) -> None:
    """Write a number at once: a reader sees the whole file or none."""
    new = file.with_suffix(".new")
    new.write_text(str(number))
    new.rename(file)


if __name__ == "__main__":
    _serve()
