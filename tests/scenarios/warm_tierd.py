"""Process that has imported tierd and forks for every command, for stories of hundreds of commands.

Each command is a process of its own, with its own event loop, arguments and exit code, but without the second of the
import. Run as a script, this module is that process; imported, it is the client of a test.
"""

import json
import tempfile
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType

from tests.fakes.forking_parent import ForkingParent, serve_lines
from tests.scenarios.command import CommandResult
from tests.scenarios.warm_daemons import WarmDaemons, become, exit_code, import_tierd


class WarmTierd(ForkingParent):
    """Runner of ``tierd`` commands, one at a time, and parent of daemons; a context manager."""

    def __init__(self) -> None:
        super().__init__("tests.scenarios.warm_tierd")

    @cached_property
    def daemons(self) -> WarmDaemons:
        """Return the parent of daemons, which starts with the first use."""
        return WarmDaemons()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "daemons" in self.__dict__:
            self.daemons.close()
        super().__exit__(kind, error, trace)

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
    serve_lines(partial(_live, import_tierd("cat", "segments", "verify")))


def _live(main: Callable[[], None], line: str) -> int:
    order = json.loads(line)
    become(order["arguments"], read=order["read"], out=order["out"], err=order["err"])
    return exit_code(main)


if __name__ == "__main__":
    _serve()
