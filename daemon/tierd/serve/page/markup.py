"""HTML from values: every text is escaped on its way into an element, unless it is ``Html`` already."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape as escape_html
from typing import Final
from urllib.parse import quote, urlencode

from tierd.control_characters import visible

_VOID: Final = frozenset({"meta", "link", "input", "br", "hr"})

Attribute = str | int | float | bool | None


class Html(str):
    """Text that is HTML already and is taken into a page as it is."""

    __slots__ = ()


def escape(text: str) -> str:
    """Return a text as HTML: its markup has no effect, and control characters are shown as their escapes."""
    return escape_html(visible(text))


def element(tag: str, *children: str, **attributes: Attribute) -> Html:
    """Return an element; children that are not ``Html`` are escaped, and so are the values of attributes.

    Args:
        tag: its name.
        children: its content, in order.
        attributes: by name; ``class_`` stands for ``class``, ``aria_label`` for ``aria-label``. True is an attribute
            without a value; None and False leave the attribute out.
    """
    inside = "".join(
        f" {_attribute_name(name)}" if value is True else f' {_attribute_name(name)}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Html(f"<{tag}{inside}>")
    return Html(f"<{tag}{inside}>{joined(children)}</{tag}>")


def joined(parts: Iterable[str]) -> Html:
    """Return the parts one after the other; those that are not ``Html`` are escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def link(href: str, text: str, **attributes: Attribute) -> Html:
    """Return a link."""
    return element("a", text, href=href, **attributes)


def path_of(*names: str) -> str:
    """Return the path whose steps are ``names``, each percent-encoded as a whole."""
    return "/" + "/".join(quote(name, safe="") for name in names)


def with_query(path: str, **parameters: str | int) -> str:
    """Return the path with a query of the parameters that are neither empty nor 0."""
    given = {name: value for name, value in parameters.items() if value not in ("", 0)}
    return f"{path}?{urlencode(given)}" if given else path


@dataclass(frozen=True, slots=True)
class Column:
    """Head of a column.

    Attributes:
        title: its text, or a link.
        is_number: its cells are aligned to the right.
        sort: value of ``aria-sort``; None for a column that the table is not sorted by.
    """

    title: str
    is_number: bool = False
    sort: str | None = None


def text_columns(*titles: str) -> tuple[Column, ...]:
    """Return the heads of columns of text."""
    return tuple(map(Column, titles))


def number_columns(*titles: str) -> tuple[Column, ...]:
    """Return the heads of columns of numbers."""
    return tuple(Column(title, is_number=True) for title in titles)


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, classes: Sequence[str] = ()
) -> Html:
    """Return a table in a region that scrolls by itself; the first cell of each row is its head.

    Args:
        caption: its name, also of the region.
        columns: the heads of the columns.
        rows: cells; as many in each row as there are columns.
        classes: of the rows, in order; empty for none.
    """
    head = joined(
        element("th", column.title, scope="col", class_="n" if column.is_number else None, aria_sort=column.sort)
        for column in columns
    )
    body = joined(
        _row(columns, cells, classes[number] if number < len(classes) else "") for number, cells in enumerate(rows)
    )
    inner = element("table", element("caption", caption), element("thead", element("tr", head)), element("tbody", body))
    return element("div", inner, class_="scroll", role="region", aria_label=caption, tabindex=0)


def _row(columns: Sequence[Column], cells: Sequence[str], class_name: str) -> Html:
    pairs = zip(columns, cells, strict=True)
    made = [
        element("td" if at else "th", cell, scope=None if at else "row", class_="n" if column.is_number else None)
        for at, (column, cell) in enumerate(pairs)
    ]
    return element("tr", *made, class_=class_name or None)


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return a list of names with their values."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs))


def paragraphs(texts: Iterable[str]) -> Html:
    """Return a paragraph for each text that is not empty."""
    return joined(element("p", text) for text in texts if text)


def section(title: str, *children: str, level: int = 2, id_: str | None = None) -> Html:
    """Return a section with its heading; empty if all children are."""
    if not any(children):
        return Html("")
    return element("section", element(f"h{level}", title), *children, id=id_)


def moment(time_ms: int | None) -> str:
    """Return a wall clock as an element ``time`` in UTC; "never" for None and for 0."""
    if not time_ms or time_ms < 0:
        return "never"
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a timestamp of a producer may be any number
        return f"{time_ms} ms"
    return element("time", at.strftime("%Y-%m-%d %H:%M UTC"), datetime=at.isoformat(timespec="seconds"))


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{days} d {hours % 24} h"


def number_text(value: int | None) -> str:
    """Return a number with separators; empty for None and for numbers below 0, which stand for "none"."""
    return "" if value is None or value < 0 else f"{value:,}"


def _attribute_name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
