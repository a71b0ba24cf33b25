"""The part of Markdown that the operations page is written in, as HTML: paragraphs, lists, tables, blocks of code."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tierd.serve.page.markup import Column, Html, element, escape, joined, table

HrefOf = Callable[[str], str | None]
"""Function that returns the address of a target of a link; None for one that is not served."""

_FENCE: Final = "```"
_ITEM: Final = re.compile(r"(?:[-*]|(\d+)\.) (.*)")
_INLINE: Final = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\[([^\]]*)\]\(([^)\s]+)\)")
_CELL: Final = re.compile(r"(?<!\\)\|")


def render_markdown(text: str, href_of: HrefOf, *, name: str) -> Html:
    """Return a text as HTML; ``name`` is that of its tables. What is not Markdown is a paragraph."""
    return joined(_block(lines, href_of, name) for lines in _blocks(text.splitlines()))


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines of each block: of code with its fences, or up to an empty line or another kind of block."""
    block: list[str] = []
    is_code = False
    for line in lines:
        is_fence = line.lstrip().startswith(_FENCE)
        ends = not is_code and (not line.strip() or is_fence or _begins_another(block, line))
        if ends and block:
            yield block
            block = []
        if line.strip() or is_code:
            block.append(line)
        if is_fence and is_code:
            yield block
            block = []
        is_code ^= is_fence
    if block:
        yield block


def _begins_another(block: Sequence[str], line: str) -> bool:
    if not block:
        return False
    return line.startswith("|") != block[0].startswith("|") or (
        _ITEM.match(line) is not None and _ITEM.match(block[0]) is None
    )


def _block(lines: list[str], href_of: HrefOf, name: str) -> Html:
    if lines[0].lstrip().startswith(_FENCE):
        return element("pre", Html("\n".join(map(escape, lines[1:-1]))))
    if lines[0].startswith("|") and len(lines) > 1:
        return _table(lines, href_of, name)
    if (first := _ITEM.match(lines[0])) is not None:
        items = [element("li", _inline(item, href_of)) for item in _items(lines)]
        return element("ol" if first[1] else "ul", *items)
    return element("p", _inline(" ".join(lines), href_of))


def _items(lines: Sequence[str]) -> Iterator[str]:
    """Yield the text of each item, with the lines that continue it."""
    item = ""
    for line in lines:
        found = _ITEM.match(line)
        if found is None:
            item += f" {line.strip()}"
            continue
        if item:
            yield item
        item = found[2]
    yield item


def _table(lines: Sequence[str], href_of: HrefOf, name: str) -> Html:
    head, rows = _cells(lines[0]), [_cells(line) for line in lines[2:]]
    columns = [Column(_inline(cell, href_of)) for cell in head]
    return table(name, columns, ([_inline(cell, href_of) for cell in _of_length(row, len(head))] for row in rows))


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(line.strip().strip("|"))]


def _of_length(row: Sequence[str], length: int) -> list[str]:
    return [*row[:length], *[""] * (length - len(row))]


def _inline(text: str, href_of: HrefOf) -> Html:
    parts: list[str] = []
    end = 0
    for found in _INLINE.finditer(text):
        code, bold, label, target = found.groups()
        parts.append(text[end : found.start()])
        if code:
            parts.append(element("code", code))
        elif bold:
            parts.append(element("strong", _inline(bold, href_of)))
        else:
            parts.append(_link(label, target, href_of))
        end = found.end()
    return joined([*parts, text[end:]])


def _link(label: str, target: str, href_of: HrefOf) -> Html:
    href = href_of(target)
    shown = _inline(label, lambda _: None)
    return joined((shown, f" (docs/{target})")) if href is None else element("a", shown, href=href)
