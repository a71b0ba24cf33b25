"""ForkingParent: a process that has imported all modules and forks a child for every line of its input."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.services.waiting import is_readable

_DEADLINE_S: Final = 300.0  # far more than any child needs, on a busy machine too


class ForkingParent:
    """Parent process of a module that calls ``serve_lines``, with one child at a time. Use as a context manager."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        self._module = module
        self._heard = b""

    def say(self, line: str) -> None:
        """Start a child with ``line``, which has no end of line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def hear(self) -> str:
        """Return the next line that the child or, with its exit code, the parent printed; empty when it has ended.

        Raises:
            TimeoutError: nothing was printed for five minutes.
        """
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while b"\n" not in self._heard:
            if not is_readable(output, deadline_s=_DEADLINE_S):
                raise TimeoutError(f"{self._module} and its children printed nothing for {_DEADLINE_S:g} s")
            if not (piece := os.read(output, 1 << 16)):
                break
            self._heard += piece
        line, end, self._heard = self._heard.partition(b"\n")
        return (line + end).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:  # a child hangs, of which the caller was told
            self._process.kill()
            self._process.wait()
            assert error is not None, "a child has not ended"
        self._process.stdout.close()


def serve_lines(live: Callable[[str], int]) -> None:
    """Run as that parent: call ``live`` in a child for every line of standard input, and print its exit code."""
    gc.collect()
    gc.freeze()  # otherwise the first collection in every child would copy all these pages
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(live(line))  # immediately: the teardown of all imports takes longer than most children live
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
