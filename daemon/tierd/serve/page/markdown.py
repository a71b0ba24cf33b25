"""Markdown of the operations page as HTML, made of the same elements as the other pages; markup in it is text."""

from collections.abc import Callable, Iterable
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from tierd.serve.page.markup import Column, Html, element, escape, joined, table

HrefOf = Callable[[str], str | None]
"""Function that returns the address of a target of a link; None for one that is not served."""

_TAGS: Final = {
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "strong": "strong",
    "em": "em",
    "hr": "hr",
}
_NOT_USED: Final = ("html_block", "html_inline", "image", "autolink", "heading", "lheading", "reference")
_PARSER: Final = MarkdownIt("commonmark").enable("table").disable(_NOT_USED)


def render_markdown(text: str, href_of: HrefOf, *, name: str) -> Html:
    """Return a text as HTML; ``name`` is that of its tables."""
    return _Rendering(href_of, name).of_all(SyntaxTreeNode(_PARSER.parse(text)).children)


class _Rendering:
    def __init__(self, href_of: HrefOf, name: str) -> None:
        self._href_of = href_of
        self._name = name

    def of_all(self, nodes: Iterable[SyntaxTreeNode]) -> Html:
        return joined(map(self._of, nodes))

    def _of(self, node: SyntaxTreeNode) -> str:
        """Return a node of the tree; text that is not ``Html`` is escaped by the element around it."""
        match node.type:
            case "text":
                return node.content
            case "softbreak" | "hardbreak":
                return " "
            case "code_inline":
                return element("code", node.content)
            case "fence" | "code_block":
                return element("pre", joined(Html(escape(line) + "\n") for line in node.content.splitlines()))
            case "link":
                return self._link(node)
            case "table":
                return self._table(node)
            case kind:
                is_shown = kind in _TAGS and not (kind == "paragraph" and node.hidden)  # hidden in a tight list
                inside = self.of_all(node.children)
                return element(_TAGS[kind], inside) if is_shown else inside

    def _link(self, node: SyntaxTreeNode) -> Html:
        target = str(node.attrs["href"])
        href, shown = self._href_of(target), self.of_all(node.children)
        return joined((shown, f" (docs/{target})")) if href is None else element("a", shown, href=href)

    def _table(self, node: SyntaxTreeNode) -> Html:
        lines = [row for part in node.children for row in part.children]
        head, *rows = [[self.of_all(cell.children) for cell in line.children] for line in lines]
        return table(self._name, [Column(title) for title in head], rows)
