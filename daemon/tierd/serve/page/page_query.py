"""Queries of pages: filter, order and page of a list, parsed from parameters that may be anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from tierd.serve.page.markup import Html, element, link, with_query

_T = TypeVar("_T")

ROWS_PER_PAGE: Final = 100
_MAX_TEXT: Final = 249  # the longest name of a topic
_MAX_PAGE: Final = 1_000_000
_WILDCARDS: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Choice of rows of a list.

    Attributes:
        pattern: of names, with ``*`` and ``?``, or a part of a name; empty for all.
        sort: key of the order; empty for the order that the list has.
        page: of ``ROWS_PER_PAGE`` rows, from 1 on.
    """

    pattern: str = ""
    sort: str = ""
    page: int = 1

    @classmethod
    def parse(cls, parameters: Mapping[str, str], sorts: Sequence[str] = ()) -> "ListQuery":
        """Return the query of URL parameters; a value that cannot be used counts as absent."""
        number = parameters.get("page", "")
        page = int(number) if number.isascii() and number.isdigit() and len(number) < 8 else 1
        sort = parameters.get("sort", "")
        return cls(
            pattern=parameters.get("pattern", "").strip()[:_MAX_TEXT],
            sort=sort if sort in sorts else "",
            page=min(max(page, 1), _MAX_PAGE),
        )

    def matches(self, name: str) -> bool:
        """Return True if the pattern takes the name."""
        if not self.pattern:
            return True
        return fnmatchcase(name, self.pattern) if _WILDCARDS & set(self.pattern) else self.pattern in name


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list: its links, and what it shows."""

    text: str
    links: Html


def page_of(rows: Sequence[_T], query: ListQuery, path: str, noun: str) -> tuple[Sequence[_T], ListPage]:
    """Return the rows of the page that the query asks for, or of the last page, and the links to its neighbours."""
    pages = max(1, -(-len(rows) // ROWS_PER_PAGE))
    number = min(query.page, pages)
    first = (number - 1) * ROWS_PER_PAGE
    shown = rows[first : first + ROWS_PER_PAGE]
    if pages == 1:
        return shown, ListPage(f"{len(rows):,} {noun}", Html(""))

    def to(page: int, text: str, rel: str) -> Html:
        return link(with_query(path, pattern=query.pattern, sort=query.sort, page=page), text, rel=rel)

    parts = [element("span", f"Page {number:,} of {pages:,}")]
    if number > 1:
        parts = [to(1, "First page", "first"), to(number - 1, "Previous page", "prev"), *parts]
    if number < pages:
        parts += [to(number + 1, "Next page", "next"), to(pages, "Last page", "last")]
    links = element("nav", *parts, class_="pages", aria_label=f"Pages of {noun}")
    return shown, ListPage(f"{first + 1:,} to {first + len(shown):,} of {len(rows):,} {noun}", links)


def filter_form(path: str, query: ListQuery, sorts: Mapping[str, str], label: str) -> Html:
    """Return a form for the filter and the order.

    Args:
        path: of the page.
        query: in force.
        sorts: titles of the orders, by key.
        label: of the filter.
    """
    pattern = element("input", type="search", name="pattern", id="pattern", value=query.pattern, maxlength=_MAX_TEXT)
    order = element(
        "select",
        *(element("option", title, value=key, selected=key == query.sort) for key, title in sorts.items()),
        name="sort",
        id="sort",
    )
    return element(
        "form",
        element("div", element("label", label, for_="pattern"), pattern),
        element("div", element("label", "Order", for_="sort"), order) if sorts else "",
        element("button", "Show", type="submit"),
        link(path, "All") if query.pattern else "",
        method="get",
        action=path,
        role="search",
    )
