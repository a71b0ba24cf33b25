"""Answers for people on standard output: as wide as the terminal and in colour, or in a file without codes."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Final

from tierd.cli.output.layout import LayoutPart, PlainTable
from tierd.cli.output.printing import flush_output, standard_output

_FILE_WIDTH: Final = 250
_UP, _TO_LINE_END, _TO_SCREEN_END = "\x1b[1A", "\x1b[K", "\x1b[J"  # ECMA-48: CUU, EL, ED
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def print_table(table: PlainTable) -> None:
    """Print a table."""
    print_group(table)


def print_group(*parts: LayoutPart) -> None:
    """Print lines and tables one below the other."""
    with standard_output():
        sys.stdout.writelines(f"{line}\n" for line in _lines(parts))


@contextlib.contextmanager
def live_group() -> Iterator[Callable[..., None]]:
    """Yield a function that shows lines and tables in the place of those before, or below them without a terminal.

    On a terminal, lines that have no room are left out, and the cursor is hidden until the end.
    """
    if not _is_terminal():
        yield _print_below
        return
    sys.stdout.write(_HIDE_CURSOR)
    try:
        yield _InPlace().show
    finally:
        sys.stdout.write(_SHOW_CURSOR)
        sys.stdout.flush()


class _InPlace:
    """Lines on the terminal that the next ones replace."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, *parts: LayoutPart) -> None:
        """Replace what was shown."""
        lines, room = _lines(parts), shutil.get_terminal_size().lines - 1
        if len(lines) > room:
            lines = [*lines[: room - 1], f"… and {len(lines) - room + 1} more lines"]
        text = "".join(f"{line}{_TO_LINE_END}\n" for line in lines)
        sys.stdout.write(f"\r{_UP * self._shown}{text}{_TO_SCREEN_END}")
        sys.stdout.flush()
        self._shown = len(lines)


def _print_below(*parts: LayoutPart) -> None:
    print_group(*parts)
    flush_output()


def _lines(parts: tuple[LayoutPart, ...]) -> list[str]:
    is_terminal = _is_terminal()
    width = shutil.get_terminal_size().columns if is_terminal else _FILE_WIDTH
    styled = is_terminal and not os.environ.get("NO_COLOR")
    made: list[str] = []
    for part in parts:
        if isinstance(part, PlainTable):
            made += part.lines(width, styled=styled)
        else:
            made += part.lines(width if is_terminal else None, styled=styled)
    return made


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
