"""Frame of every page: head, navigation, the place of the content, and the line about the daemon."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tierd import __version__
from tierd.serve.page.markup import Html, element, joined, link, moment, path_of
from tierd.serve.page.operations_page import HELP_PATH, Anchor
from tierd.serve.page.stylesheet import STYLE

OVERVIEW_PATH: Final = "/"
TOPICS_PATH: Final = "/topics"
RUNS_PATH: Final = "/runs"
_NAVIGATION: Final = ((OVERVIEW_PATH, "Overview"), (TOPICS_PATH, "Topics"), (RUNS_PATH, "Runs and cost"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """Content of the frame.

    Attributes:
        title: of the page, also its heading.
        here: path of the section of the page in the navigation; empty for none.
        trail: pages above this one: paths and names.
        paths: the sections that this process has.
        whose: the daemon: cluster and node.
        made_ms: wall clock.
    """

    title: str
    here: str = ""
    trail: Sequence[tuple[str, str]] = ()
    paths: Sequence[str] = (OVERVIEW_PATH,)
    whose: str = ""
    made_ms: int = 0


def render_frame(frame: PageFrame, *content: str) -> str:
    """Return the whole document."""
    document = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", f"{frame.title} - tierd"),
            element("link", rel="icon", href="data:,"),
            element("style", Html(STYLE)),
        ),
        element(
            "body",
            link("#main", "Skip to the content", class_="skip"),
            element("header", link(OVERVIEW_PATH, "tierd", class_="brand"), _navigation(frame), _whose(frame)),
            element("main", _trail(frame), element("h1", frame.title), *content, id="main", tabindex=-1),
            element("footer", _footer(frame)),
        ),
        lang="en",
    )
    return f"<!doctype html>{document}"


def _navigation(frame: PageFrame) -> Html:
    shown = [(path, name) for path, name in _NAVIGATION if path in frame.paths]
    items = (
        element("li", link(path, name, aria_current="page" if path == frame.here else None)) for path, name in shown
    )
    return element("nav", element("ul", *items), aria_label="Sections")


def _whose(frame: PageFrame) -> Html:
    return element("p", frame.whose, class_="whose") if frame.whose else Html("")


def _trail(frame: PageFrame) -> Html:
    if not frame.trail:
        return Html("")
    items = (element("li", link(path, name)) for path, name in frame.trail)
    return element("nav", element("ul", *items), aria_label="Where this page is")


def _footer(frame: PageFrame) -> Html:
    links = (
        *((link(path, text), " · ") for path, text in (("/status", "status as JSON"), ("/metrics", "metrics"))),
        (link("/readyz", "readiness"), " · "),
        (link(path_of(HELP_PATH, Anchor.PAGE.value), "about these pages"), ""),
    )
    return joined(
        (
            element("p", f"tierd {__version__}, ", moment(frame.made_ms)),
            element("p", *(part for pair in links for part in pair)),
        )
    )
