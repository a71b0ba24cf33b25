"""How answers are laid out for people: tables that fit a terminal and do not wrap in a file."""

from rich.console import Console
from rich.table import Table

_FILE_WIDTH = 250


def answer_console() -> Console:
    """Standard output: as wide as the terminal, and as wide as it takes where there is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)


def plain_table(text: tuple[str, ...], numbers: tuple[str, ...], last: str) -> Table:
    """A table without lines: columns of text, of numbers, and one at the end that takes what room is left."""
    table = Table(box=None, pad_edge=False)
    for column in text:
        table.add_column(column, no_wrap=True)
    for column in numbers:
        table.add_column(column, no_wrap=True, justify="right")
    table.add_column(last, overflow="fold")
    return table


def human_size(size_bytes: int) -> str:
    """A size to three digits or so: ``34.4 KiB``."""
    size, units = float(size_bytes), iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = "B"
    while size >= 1024 and (larger := next(units, "")):
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
