"""A process that has imported tierd already and forks for every command, for stories of hundreds of commands.

Each command still is a process of its own, with its own event loop, arguments and exit code; what it is spared is
the second of importing. Run as a script it is that process; imported, it is how a test talks to it.
"""

import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.scenarios.command import CommandResult


class WarmTierd:
    """Runs ``tierd`` commands one at a time. Use as a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.warm_tierd"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def run(self, *arguments: str) -> CommandResult:
        """Run one command to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "stdout"), Path(folder, "stderr")
            self._process.stdin.write(json.dumps({"arguments": arguments, "out": str(out), "err": str(err)}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, "the warm process has ended"
            return CommandResult(int(answer), out.read_text(), err.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def _serve() -> None:
    main = importlib.import_module("tierd.cli").main
    for verb in ("cat", "segments", "verify"):
        importlib.import_module(f"tierd.cli.commands.{verb}")
    gc.collect()
    gc.freeze()  # or the first collection in every child would copy all these pages
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(order["arguments"], order["out"], order["err"])
            os._exit(_exit_code(main))  # at once: taking down what was imported takes longer than most commands
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _exit_code(main: Callable[[], None]) -> int:
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


def _become(arguments: Sequence[str], out: str, err: str) -> None:
    sys.argv = ["tierd", *arguments]
    for name, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(name, flags, 0o600), descriptor)


if __name__ == "__main__":
    _serve()
