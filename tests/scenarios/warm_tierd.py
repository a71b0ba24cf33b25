"""Process that has imported tierd and forks for every command, for stories of hundreds of commands.

Each command is a process of its own, with its own event loop, arguments and exit code, but without the second of the
import. Run as a script, this module is that process; imported, it is the client of a test.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.fakes.forking_parent import ForkingParent, serve_lines
from tests.scenarios.command import CommandResult


class WarmTierd(ForkingParent):
    """Runner of ``tierd`` commands, one at a time; a context manager."""

    def __init__(self) -> None:
        super().__init__("tests.scenarios.warm_tierd")

    def run(self, *arguments: str, given: str = "") -> CommandResult:
        """Run one command to its end; it reads ``given`` from its standard input."""
        with tempfile.TemporaryDirectory() as folder:
            read, out, err = (Path(folder, name) for name in ("stdin", "stdout", "stderr"))
            read.write_text(given)
            self.say(json.dumps({"arguments": arguments, "read": str(read), "out": str(out), "err": str(err)}))
            answer = self.hear()
            assert answer, "the warm process has ended"
            return CommandResult(int(answer), out.read_text(), err.read_text())


def _serve() -> None:
    main = importlib.import_module("tierd.cli").main
    for verb in ("cat", "segments", "verify"):
        importlib.import_module(f"tierd.cli.commands.{verb}")
    serve_lines(partial(_live, main))


def _live(main: Callable[[], None], line: str) -> int:
    order = json.loads(line)
    _become(order["arguments"], read=order["read"], out=order["out"], err=order["err"])
    return _exit_code(main)


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


def _become(arguments: Sequence[str], *, read: str, out: str, err: str) -> None:
    sys.argv = ["tierd", *arguments]
    for name, descriptor in ((read, 0), (out, 1), (err, 2)):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(name, flags, 0o600), descriptor)


if __name__ == "__main__":
    _serve()
