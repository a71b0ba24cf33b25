"""Progress of long work on standard error: a moving line on a terminal, otherwise a plain line every few seconds."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from tierd.cli.output.printing import print_error
from tierd.control_characters import visible

ReportProgress = Callable[[str], None]

_QUIET_S = 2.0


@contextlib.contextmanager
def progress_line(title: str) -> Iterator[ReportProgress]:
    """Yield a function that shows the progress; without a terminal, work of a few seconds prints nothing."""
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    with _moving_line(title) as report_progress:
        yield lambda text: report_progress(f"{title}: {text}")


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function that shows how much of the work is done, and a text; without a terminal as ``progress_line``."""
    if not sys.stderr.isatty():
        lines = _Lines(title)
        yield lambda done, total, text: lines(f"{100 * done // max(total, 1)} %, {text}")
        return
    with _moving_bar(title) as report_progress:
        yield report_progress


@contextlib.contextmanager
def step_line(title: str) -> Iterator[ReportProgress]:
    """Yield a function that shows the present step; without a terminal, every step is a line."""
    if not sys.stderr.isatty():
        yield print_error
        return
    with _moving_line(title) as report_progress:
        yield report_progress


@contextlib.contextmanager
def _moving_line(title: str) -> Iterator[Callable[[str], None]]:
    """Show a moving line on standard error, which is a terminal; yield a function that sets its text."""
    from rich.console import Console  # noqa: PLC0415 - no answer of a command needs rich, which takes as long as one
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(visible(title))
        yield lambda text: progress.update(task, description=visible(text))


@contextlib.contextmanager
def _moving_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on standard error, which is a terminal; yield a function of what is done, of how much, and a text."""
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(visible(title), total=None)
        yield lambda done, total, text: progress.update(
            task, completed=done, total=total, description=visible(f"{title}: {text}")
        )


class _Lines:
    def __init__(self, title: str) -> None:
        self._title = title
        self._next_s = time.monotonic() + _QUIET_S
        self._last_text = ""

    def __call__(self, text: str) -> None:
        if text != self._last_text and time.monotonic() >= self._next_s:
            self._last_text = text
            self._next_s = time.monotonic() + _QUIET_S
            print_error(f"{self._title}: {text}")
