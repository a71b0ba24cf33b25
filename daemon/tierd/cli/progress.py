"""Long work shown on standard error: a moving line on a terminal, plain lines now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Tell = Callable[[str], None]

_QUIET_S = 2.0


@contextlib.contextmanager
def progress_line(title: str) -> Iterator[Tell]:
    """Yield what says how far the work is; elsewhere than on a terminal short work says nothing."""
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title)
        yield lambda text: progress.update(task, description=f"{title}: {text}")


class _Lines:
    def __init__(self, title: str) -> None:
        self._title = title
        self._next_s = time.monotonic() + _QUIET_S
        self._said = ""

    def __call__(self, text: str) -> None:
        if text != self._said and time.monotonic() >= self._next_s:
            self._said = text
            self._next_s = time.monotonic() + _QUIET_S
            print(f"{self._title}: {text}", file=sys.stderr, flush=True)
