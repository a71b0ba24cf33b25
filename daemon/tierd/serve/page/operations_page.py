"""The operations page of the documentation, section by section: the pages of the daemon link to the text of a section.

The file is a part of the installed package; in a work tree it is the one in ``docs``.
"""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tierd.serve.page.markup import Html, element, link, path_of

HELP_PATH: Final = "help"
_INSTALLED: Final = Path(__file__).with_name("operations.md")
_IN_WORK_TREE: Final = Path(__file__).parents[4] / "docs" / "operations.md"
_HEADING: Final = re.compile(r"(#{1,3}) (.+)")
_NO_ANCHOR: Final = re.compile(r"[^\w\- ]")
_FENCE: Final = "```"


class Anchor(StrEnum):
    """Section of the operations page that the pages of the daemon link to."""

    READY = "ready-alive-and-services-that-are-away"
    STATES = "states-of-a-partition"
    PAUSE = "pause-resume-sync"
    PROBLEMS = "what-can-go-wrong"
    ERRORS = "errors"
    PORTS = "the-ports-of-the-daemon"
    STORE = "the-store-is-down-slow-or-refuses"
    CATALOGUE = "the-catalogue"
    DRILLS = "drills"
    PAGE = "the-page"
    FALLS_BEHIND = "tierdfallsbehind"
    LOST_SEGMENTS = "tierdlostsegments"
    HOLD_FULL = "tierdholdfull"
    DELETES_NOTHING = "tierddeletesnothing"
    DRILL_FAILS = "tierddrillfails"
    PROOF_IS_OLD = "tierdproofisold"
    PIPELINE_FAILS = "tierdpipelinefails"
    ENDPOINT_IS_BEHIND = "tierdendpointisbehind"
    UNPROTECTED = "tierdunprotected"
    STANDBY_IS_BEHIND = "tierdstandbyisbehind"


@dataclass(frozen=True, slots=True)
class DocumentedSection:
    """Section of a page in Markdown: its heading, and its text without the sections below it."""

    title: str
    text: str


def help_link(anchor: Anchor, text: str = "what to do") -> Html:
    """Return a link to a section, whose name tells links with equal texts apart."""
    return link(path_of(HELP_PATH, anchor.value), text, aria_label=f"{text}: {anchor.value.replace('-', ' ')}")


def read_operations_page() -> str:
    """Return the operations page of this version, in Markdown. Blocking.

    Raises:
        OSError: the file cannot be read.
    """
    return (_INSTALLED if _INSTALLED.is_file() else _IN_WORK_TREE).read_text()


def sections_of(markdown: str) -> Mapping[str, DocumentedSection]:
    """Return the sections of a page by anchor, in order. A ``#`` inside a block of code begins no section."""
    found: dict[str, DocumentedSection] = {}
    for title, lines in _split(markdown):
        found.setdefault(anchor_of(title), DocumentedSection(title, "\n".join(lines).strip("\n")))
    return found


def anchor_of(title: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return _NO_ANCHOR.sub("", title.lower()).replace(" ", "-")


def render_section(found: DocumentedSection, anchors: Container[str]) -> Html:
    """Return a section as HTML; links to the sections of ``anchors`` work, those to other pages name the file."""
    from tierd.serve.page.markdown import render_markdown  # noqa: PLC0415 - a parser that the other pages do without

    def href_of(target: str) -> str | None:
        page, _, anchor = target.partition("#")
        return path_of(HELP_PATH, anchor) if not page and anchor in anchors else None

    text = found.text or "This section has only sections below it."
    return element("article", render_markdown(text, href_of, name=found.title.replace("`", "")))


def _split(markdown: str) -> Iterator[tuple[str, list[str]]]:
    title, lines, is_code = "", list[str](), False
    for line in markdown.splitlines():
        is_code ^= line.startswith(_FENCE)
        heading = None if is_code else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        if title:
            yield title, lines
        title, lines = heading[2], []
    if title:
        yield title, lines
