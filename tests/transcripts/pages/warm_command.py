"""``tierd`` as a program in PATH that costs no import: a process that has imported tierd forks for every call.

The program connects to the process, and hands over its arguments, environment, directory and standard streams. Pipes,
redirections and background jobs of a shell therefore work as with ``tierd`` itself. Run as a script with the path of a
socket, this module is the process; imported, it starts it.
"""

import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.scenarios.interrupted_tierd import replace_spark
from tests.scenarios.warm_daemons import exit_code, import_tierd
from tests.services.waiting import wait_until

PLAIN_SPARK: Final = "TIERD_TESTS_PLAIN_SPARK"
"""Variable with a folder: commands find a Spark there whose jobs run without Spark."""

_PROGRAM: Final = """#!{python} -ISE
import json, os, signal, socket, sys
order = json.dumps({{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [len(order).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(order)
    pid = int.from_bytes(server.recv(4), "big")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = server.recv(1)  # empty when a signal has ended the command
sys.exit(code[0] if code else 137)
"""
_DEADLINE_S: Final = 300.0  # far more than an import needs, on a busy machine too


class WarmCommand:
    """Process that has imported tierd; commands that it has forked end with it at the latest. A context manager."""

    def __init__(self, folder: Path) -> None:
        """Start the process; ``folder``, which is to be in PATH, gets the program."""
        address = folder / "socket"
        self.program = folder / "tierd"
        self.program.write_text(_PROGRAM.format(python=sys.executable, address=str(address)))
        self.program.chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(address)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parents[3],
        )
        wait_until(address.exists, what="a process that has imported tierd", deadline_s=_DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_DEADLINE_S)


def _serve(address: str) -> None:
    """Fork for every connection until standard input ends; then kill what still runs."""
    main = import_tierd("cat", "doctor", "segments", "status", "verify")
    gc.collect()
    gc.freeze()  # otherwise the first collection in every child would copy all these pages
    running: set[int] = set()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen(64)
        Path(f"{address}.new").rename(address)
        ready = select.poll()
        ready.register(listener, select.POLLIN)
        ready.register(sys.stdin, select.POLLIN)
        while sys.stdin.fileno() not in (readable := {number for number, _ in ready.poll(1000)}):
            running -= {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]}
            if not readable:
                continue
            connection, _ = listener.accept()
            if (pid := os.fork()) == 0:
                listener.close()
                os._exit(_live(main, connection))
            connection.close()
            running.add(pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _live(main: Callable[[], None], connection: socket.socket) -> int:
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    order = json.loads(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
    connection.sendall(os.getpid().to_bytes(4, "big"))
    connection.set_inheritable(False)
    for stream, descriptor in zip(streams, range(3), strict=True):
        os.dup2(stream, descriptor)
        os.close(stream)
    for name, mode, descriptor in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))  # the parent's are of other kinds of files
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    if PLAIN_SPARK in os.environ:
        replace_spark(Path(os.environ[PLAIN_SPARK]))
    random.seed()
    sys.argv = ["tierd", *order["arguments"]]
    code = exit_code(main)
    connection.sendall(bytes([code % 256]))
    return code


if __name__ == "__main__":
    _serve(sys.argv[1])
