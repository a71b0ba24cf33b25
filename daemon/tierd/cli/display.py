"""How answers are laid out for people: tables that fit a terminal and do not wrap in a file, and moving lines.

Cells and lines are plain text: control characters are shown as their escapes, and nothing is taken for markup.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
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
def live_group(*parts: "Part") -> Iterator[Callable[..., None]]:
    """Print lines and tables; yield what shows others in their place."""
    with Live(Group(*parts), console=_answer_console(), auto_refresh=False) as live:
        yield lambda *others: live.update(Group(*others), refresh=True)


@contextlib.contextmanager
def moving_line(title: str) -> Iterator[Callable[[str], None]]:
    """Show a line that moves on standard error, a terminal; yield what gives it another text."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(visible(title))
        yield lambda text: progress.update(task, description=visible(text))


def plain_text(text: str, style: Style = "") -> Text:
    """Return a line, or a cell of a table, in a style."""
    return Text(visible(text), style=style)


class PlainTable(Table):
    """A table without lines whose cells are plain text."""

    def add_row(self, *cells: Cell) -> None:  # type: ignore[override]  # rich takes anything, markup included
        """Add a row."""
        super().add_row(*map(_cell, cells))


def plain_table(text: tuple[str, ...], numbers: tuple[str, ...], last: str) -> PlainTable:
    """A table without lines: columns of text, of numbers, and one at the end that takes what room is left."""
    table = PlainTable(box=None, pad_edge=False)
    for column in text:
        table.add_column(plain_text(column), no_wrap=True)
    for column in numbers:
        table.add_column(plain_text(column), no_wrap=True, justify="right")
    table.add_column(plain_text(last), overflow="fold")
    return table


Part: TypeAlias = Text | PlainTable
"""What is shown below one another."""


def human_size(size_bytes: int) -> str:
    """A size to three digits or so: ``34.4 KiB``."""
    size, units = float(size_bytes), iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = "B"
    while size >= 1024 and (larger := next(units, "")):
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _answer_console() -> Console:
    """Standard output: as wide as the terminal, and as wide as it takes where there is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)


def _cell(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return Text(visible(cell.plain), style=cell.style)
    lines = [cell] if isinstance(cell, str) else cell
    return Text("\n".join(map(visible, lines)))
