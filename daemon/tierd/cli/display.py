"""Layout of answers for people: tables that fit a terminal and do not wrap in a file, and moving lines.

Cells and lines are plain text: control characters are shown as their escapes, and markup has no effect.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from rich.console import Console, Group
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from tierd.control_characters import visible

Cell: TypeAlias = str | Text | Sequence[str]
"""A text, a text in a style, or several lines."""

Style: TypeAlias = Literal["", "red", "yellow", "green"]

_FILE_WIDTH = 250


def print_table(table: "PlainTable") -> None:
    """Print a table to standard output."""
    _answer_console().print(table)


def print_group(*parts: "Part") -> None:
    """Print lines and tables one below the other."""
    _answer_console().print(Group(*parts))


@contextlib.contextmanager
def live_group() -> Iterator[Callable[..., None]]:
    """Yield a function that shows lines and tables in the place of those before, or below them without a terminal."""
    console = _answer_console()
    if not console.is_terminal:
        yield lambda *parts: _print_below(console, parts)
        return
    from rich.live import Live  # noqa: PLC0415 - of one form of the answer

    with Live(console=console, auto_refresh=False) as live:
        yield lambda *parts: live.update(Group(*parts), refresh=True)


def _print_below(console: Console, parts: Sequence["Part"]) -> None:
    console.print(Group(*parts))
    console.file.flush()


@contextlib.contextmanager
def moving_line(title: str) -> Iterator[Callable[[str], None]]:
    """Show a moving line on standard error, which is a terminal; yield a function that sets its text."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(visible(title))
        yield lambda text: progress.update(task, description=visible(text))


@contextlib.contextmanager
def moving_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on standard error, which is a terminal; yield a function of what is done, of how much, and a text."""
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


def plain_text(text: str, style: Style = "") -> Text:
    """Return a line, or a cell of a table, in a style."""
    return Text(visible(text), style=style)


class PlainTable(Table):
    """A table without lines whose cells are plain text."""

    def add_row(self, *cells: Cell) -> None:  # type: ignore[override]  # rich takes any object, and markup
        """Add a row."""
        super().add_row(*map(_cell, cells))


def plain_table(text: tuple[str, ...], numbers: tuple[str, ...], last: str) -> PlainTable:
    """Return a table without lines: columns of text, columns of numbers, and a last column that takes the room left."""
    table = PlainTable(box=None, pad_edge=False)
    for column in text:
        table.add_column(plain_text(column), no_wrap=True)
    for column in numbers:
        table.add_column(plain_text(column), no_wrap=True, justify="right")
    table.add_column(plain_text(last), overflow="fold")
    return table


Part: TypeAlias = Text | PlainTable
"""A line or a table."""


def human_size(size_bytes: int) -> str:
    """Return a size with one decimal in the largest unit that fits: ``34.4 KiB``."""
    size, units = float(size_bytes), iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = "B"
    while size >= 1024 and (larger := next(units, "")):
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _answer_console() -> Console:
    """Return standard output: as wide as the terminal, or wide enough for long lines where there is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)


def _cell(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return Text(visible(cell.plain), style=cell.style)
    lines = [cell] if isinstance(cell, str) else cell
    return Text("\n".join(map(visible, lines)))
