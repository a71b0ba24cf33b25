"""A series as a line in SVG, with its values in words beside it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tierd.serve.page.markup import Html, element, facts, joined

_WIDTH: Final = 480  # points: three minutes each
_HEIGHT: Final = 60


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """The last, the largest and the mean value of a series; None without a value."""

    last: float | None
    largest: float | None
    mean: float | None


def summary_of(values: Sequence[float]) -> SeriesSummary:
    """Return the summary; NaN stands for a missing value, and the last value may be missing."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return SeriesSummary(None, None, None)
    return SeriesSummary(known[-1], max(known), sum(known) / len(known))


def render_sparkline(title: str, values: Sequence[float], text_of: Callable[[float], str]) -> Html:
    """Return a heading, the line, and its values in words; words alone while there is no value yet."""
    summary = summary_of(values)
    if summary.last is None or summary.largest is None or summary.mean is None:
        return element("div", element("h3", title), element("p", "no sample yet: one a minute", class_="quiet"))
    words = (("now", text_of(summary.last)), ("largest", text_of(summary.largest)), ("mean", text_of(summary.mean)))
    label = f"{title} over the last day: " + ", ".join(f"{name} {value}" for name, value in words)
    drawing = element(
        "svg",
        element("line", x1=0, x2=_WIDTH, y1=_HEIGHT - 1, y2=_HEIGHT - 1, class_="base"),
        *(element("polyline", points=points) for points in _runs(values, summary.largest)),
        class_="spark",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    return element("div", element("h3", title), drawing, facts(words), class_="series")


def _runs(values: Sequence[float], largest: float) -> list[Html]:
    """Return the points of each run without a missing value; each point is the largest value of its minutes."""
    runs: list[list[str]] = [[]]
    for at in range(_WIDTH):
        part = values[at * len(values) // _WIDTH : (at + 1) * len(values) // _WIDTH]
        known = [value for value in part if not math.isnan(value)]
        if known:
            height = max(known) / largest * (_HEIGHT - 4) if largest > 0 else 0
            runs[-1].append(f"{at},{_HEIGHT - 2 - height:.1f}")
        elif runs[-1]:
            runs.append([])
    return [joined([" ".join(run if len(run) > 1 else run * 2)]) for run in runs if run]
