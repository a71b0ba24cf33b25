"""Layout of text in columns, as wide as a terminal shows it. Pure.

Cells and lines are plain text: control characters are shown as their escapes, and markup has no effect.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

from tierd.control_characters import visible

Style: TypeAlias = Literal["", "bold", "red", "yellow", "green"]

_CODES: Final[dict[Style, str]] = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}  # ECMA-48, SGR
_GAP: Final = "  "
_LEAST_LAST: Final = 16
_LEAST: Final = 4


@dataclass(frozen=True, slots=True)
class StyledText:
    """A line, or a cell of a table; line ends in ``plain`` separate lines of one cell."""

    plain: str
    style: Style = ""

    def lines(self, width: int | None, *, styled: bool) -> list[str]:
        """Return the lines of the text, folded to ``width``; None does not fold."""
        folded = self.plain.split("\n") if width is None else fold(self.plain, width)
        return [painted(line, self.style) if styled else line for line in folded]


Cell: TypeAlias = str | StyledText | Sequence[str]
"""A text, a text in a style, or several lines."""


def plain_text(text: str, style: Style = "") -> StyledText:
    """Return a line, or a cell of a table, in a style."""
    return StyledText(visible(text), style)


def painted(text: str, style: Style) -> str:
    """Return a line with the codes of a terminal that show it in a style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text


class PlainTable:
    """A table without rules: columns of text, columns of numbers, and a last column that takes the room left."""

    def __init__(self, text: tuple[str, ...], numbers: tuple[str, ...], last: str) -> None:
        """Take the heads of the columns."""
        self._numbers = range(len(text), len(text) + len(numbers))
        self._head = [plain_text(name, "bold") for name in (*text, *numbers, last)]
        self._rows: list[list[StyledText]] = []

    @property
    def row_count(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def add_row(self, *cells: Cell) -> None:
        """Add a row; cells that are missing at its end are empty."""
        self._rows.append([*map(_cell, cells), *[StyledText("")] * (len(self._head) - len(cells))])

    def lines(self, width: int, *, styled: bool) -> list[str]:
        """Return the lines of the table, ``width`` wide at most.

        Args:
            width: columns of the terminal. The last column folds; if that is not enough, the widest others are cut.
            styled: with the codes of a terminal for the styles.
        """
        *widths, last = _fitted(self._natural_widths(), width)
        made = []
        for row in (self._head, *self._rows):
            cells = [_cut(cell.plain, room).split("\n") for cell, room in zip(row, widths, strict=False)]
            cells.append(fold(row[-1].plain, last))
            made += [self._line(row, line, widths, styled=styled) for line in zip_longest(*cells, fillvalue="")]
        return made

    def _natural_widths(self) -> list[int]:
        rows = (self._head, *self._rows)
        return [max(_width_of_lines(row[column].plain) for row in rows) for column in range(len(self._head))]

    def _line(self, row: list[StyledText], texts: Sequence[str], widths: list[int], *, styled: bool) -> str:
        cells = []
        for column, (cell, text) in enumerate(zip(row, texts, strict=True)):
            shown = painted(text, cell.style) if styled else text
            room = " " * (widths[column] - text_width(text)) if column < len(widths) else ""
            cells.append(room + shown if column in self._numbers else shown + room)
        return _GAP.join(cells).rstrip()


LayoutPart: TypeAlias = StyledText | PlainTable
"""A line or a table."""


def plain_table(text: tuple[str, ...], numbers: tuple[str, ...], last: str) -> PlainTable:
    """Return an empty table with columns of text, columns of numbers, and a last column that takes the room left."""
    return PlainTable(text, numbers, last)


def text_width(text: str) -> int:
    """Return how many columns of a terminal a line takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def fold(text: str, width: int) -> list[str]:
    """Return the lines of ``text``, each at most ``width`` wide: broken at spaces, and in words that are longer."""
    return [line for whole in text.split("\n") for line in _folded(whole, width)]


def _folded(whole: str, width: int) -> Iterator[str]:
    if text_width(whole) <= width:
        yield whole
        return
    line = ""
    for word in whole.split(" "):
        if line and text_width(line) + 1 + text_width(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            yield line
        line = word
        while text_width(line) > width:
            head = _head_of(line, width)
            yield head
            line = line[len(head) :]
    yield line


def _head_of(text: str, width: int) -> str:
    """Return the longest beginning that is at most ``width`` wide, and at least one character."""
    taken = 0
    for at, character in enumerate(text):
        taken += _character_width(character)
        if taken > width:
            return text[: max(at, 1)]
    return text


def _cut(text: str, width: int) -> str:
    lines = (line if text_width(line) <= width else f"{_head_of(line, width - 1)}…" for line in text.split("\n"))
    return "\n".join(lines)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _width_of_lines(text: str) -> int:
    return max(map(text_width, text.split("\n")))


def _fitted(natural: list[int], width: int) -> list[int]:
    """Return the widths of columns that fit ``width`` with the gaps between them, as far as the least widths let."""
    *widths, last = natural
    left = width - len(_GAP) * len(widths)
    last = max(1, min(last, max(left - sum(widths), _LEAST_LAST)))
    while widths and sum(widths) > left - last and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    return [*widths, last]


def _cell(cell: Cell) -> StyledText:
    if isinstance(cell, StyledText):
        return cell
    return StyledText(visible(cell) if isinstance(cell, str) else "\n".join(map(visible, cell)))
