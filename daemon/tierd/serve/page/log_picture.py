"""Picture of a partition's log in SVG, over offsets or over time; a table of the same ranges says it in words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tierd.serve.page.log_layout import LogRange, RangePlace
from tierd.serve.page.markup import Column, Html, duration_text, element, joined, moment, number_text, table
from tierd.sizes import human_size

MOST_RANGES: Final = 300
"""Ranges of a place that are drawn and listed; a broker's log has a few."""

_LABEL_WIDTH: Final = 130
_WIDTH: Final = 1000
_PLOT_WIDTH: Final = _WIDTH - _LABEL_WIDTH - 10
_LANE: Final = 26
_LEAST_WIDTH: Final = 2.0  # a range of one offset among billions is still seen

_LANES: Final[Sequence[tuple[str, tuple[RangePlace, ...]]]] = (
    ("Local log", (RangePlace.LOCAL, RangePlace.ACTIVE)),
    ("To be copied", (RangePlace.WAITING, RangePlace.COPYING)),
    ("Tier", (RangePlace.TIER, RangePlace.COMPACTED)),
    ("Leaves the tier", (RangePlace.EXPIRED, RangePlace.REPLACED)),
    ("Standby", (RangePlace.STANDBY,)),
    ("Gap", (RangePlace.GAP,)),
)
PLACE_TEXTS: Final[Mapping[RangePlace, str]] = {
    RangePlace.LOCAL: "in the local log",
    RangePlace.ACTIVE: "in the active segment",
    RangePlace.TIER: "in the tier",
    RangePlace.COMPACTED: "in the tier, compacted",
    RangePlace.COPYING: "being copied",
    RangePlace.WAITING: "rolled, waits for its copy",
    RangePlace.EXPIRED: "expired, in its grace",
    RangePlace.REPLACED: "replaced by compaction, in its grace",
    RangePlace.STANDBY: "on a standby",
    RangePlace.GAP: "gap: nowhere",
}


_Span = tuple[LogRange, int, int]
"""Range with its begin and its exclusive end on the axis."""

_TextOf = Callable[[int], str]

_SHORT_NAMES: Final[Mapping[RangePlace, str]] = {
    RangePlace.LOCAL: "local",
    RangePlace.ACTIVE: "active segment",
    RangePlace.TIER: "tier",
    RangePlace.COMPACTED: "compacted",
    RangePlace.COPYING: "being copied",
    RangePlace.WAITING: "waits",
    RangePlace.EXPIRED: "expired",
    RangePlace.REPLACED: "replaced",
    RangePlace.STANDBY: "standby",
    RangePlace.GAP: "gap",
}


@dataclass(frozen=True, slots=True)
class _Scale:
    """Linear scale of an axis from ``first`` to ``last``."""

    first: int
    last: int

    def x(self, value: float) -> float:
        """Return the horizontal place of a value."""
        return _LABEL_WIDTH + (value - self.first) / max(1, self.last - self.first) * _PLOT_WIDTH


def draw_offsets(ranges: Sequence[LogRange], marks: Mapping[str, int | None]) -> Html:
    """Return the picture over offsets, with lines at the ``marks``; empty without a range."""
    spans = [(each, each.start_offset, each.end_offset + 1) for each in ranges]
    return _drawing("offsets", spans, marks, lambda offset: f"{offset:,}")


def draw_times(ranges: Sequence[LogRange]) -> Html:
    """Return the picture over the times of records; empty if no time is known. Standbys tell no times."""
    known = ((each, each.start_ms, each.end_ms) for each in ranges)
    spans = [(each, start, end) for each, start, end in known if start is not None and end is not None]
    return _drawing("time", spans, {}, _clock_text)


def render_ranges(ranges: Sequence[LogRange], now_ms: int) -> Html:
    """Return the same ranges as a table."""
    columns = (
        Column("What"),
        Column("First offset", is_number=True),
        Column("Last offset", is_number=True),
        Column("Segments", is_number=True),
        Column("Size", is_number=True),
        Column("From"),
        Column("To"),
        Column("Why, until when"),
    )
    return table("What is where, by offsets", columns, (_range_cells(each, now_ms) for each in ranges[:MOST_RANGES]))


def _range_cells(each: LogRange, now_ms: int) -> tuple[str, ...]:
    what = PLACE_TEXTS[each.place] + ("" if each.node_id is None else f", node {each.node_id}")
    why = [each.detail] if each.detail else []
    if each.delete_after_ms is not None:
        left_s = (each.delete_after_ms - now_ms) / 1000
        why.append(f"goes in {duration_text(left_s)}" if left_s > 0 else "goes now")
    return (
        what,
        number_text(each.start_offset),
        number_text(each.end_offset),
        number_text(each.segments) if each.segments and each.node_id is None else "",
        human_size(each.size_bytes) if each.size_bytes else "",
        "" if each.start_ms is None else moment(each.start_ms),
        "" if each.end_ms is None else moment(each.end_ms),
        "; ".join(why),
    )


def _drawing(
    over: str,
    spans: Sequence[_Span],
    marks: Mapping[str, int | None],
    text_of: _TextOf,
) -> Html:
    if not spans:
        return Html("")
    known = {name: value for name, value in marks.items() if value is not None and value >= 0}
    scale = _Scale(
        min([*(start for _, start, _ in spans), *known.values()]),
        max([*(end for _, _, end in spans), *known.values()]),
    )
    lanes = [(name, [span for span in spans if span[0].place in places]) for name, places in _LANES]
    shown = [(name, inside[:MOST_RANGES]) for name, inside in lanes if inside]
    height = len(shown) * _LANE + 56
    title, identity = f"What is where over {over}", f"picture-{over}"
    words = "; ".join(f"{name}: {_some(inside, text_of)}" for name, inside in shown)
    drawing = element(
        "svg",
        element("title", title, id=f"{identity}-title"),
        element("desc", f"{words}. The table below has all ranges.", id=f"{identity}-desc"),
        *(_lane(at, name, inside, scale, text_of) for at, (name, inside) in enumerate(shown)),
        *_marks(known, scale, len(shown)),
        *_axis(scale, len(shown) * _LANE + 20, text_of),
        *_legend([place for place in PLACE_TEXTS if any(span[0].place is place for span in spans)], known, height),
        class_="picture",
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_labelledby=f"{identity}-title {identity}-desc",
    )
    return element("div", drawing, class_="scroll", role="region", aria_label=f"Picture over {over}", tabindex=0)


def _lane(at: int, name: str, spans: Iterable[_Span], scale: _Scale, text_of: _TextOf) -> Html:
    y = at * _LANE + 4
    return joined(
        (
            element("text", name, x=0, y=y + 14),
            element("rect", x=_LABEL_WIDTH, y=y, width=_PLOT_WIDTH, height=_LANE - 8, class_="lane"),
            *(_bar(span, y, scale, text_of) for span in spans),
        )
    )


def _bar(span: _Span, y: int, scale: _Scale, text_of: _TextOf) -> Html:
    each, start, end = span
    x = scale.x(start)
    width = max(_LEAST_WIDTH, scale.x(end) - x - 0.5)
    return element(
        "rect",
        element("title", f"{PLACE_TEXTS[each.place]}: {text_of(start)} to {text_of(max(start, end - 1))}"),
        x=f"{min(x, _WIDTH - 10 - width):.1f}",
        y=y,
        width=f"{width:.1f}",
        height=_LANE - 8,
        class_=each.place.value,
    )


def _marks(marks: Mapping[str, int], scale: _Scale, lanes: int) -> list[Html]:
    bottom = lanes * _LANE + 4
    return [
        element("line", element("title", name), x1=f"{x:.1f}", x2=f"{x:.1f}", y1=0, y2=bottom, class_="mark")
        for name, x in ((f"{name} {value:,}", scale.x(value)) for name, value in marks.items())
    ]


def _legend(places: Sequence[RangePlace], marks: Mapping[str, int], height: int) -> list[Html]:
    """Return a square and a name for each place that is drawn, and the names of the marks."""
    found, x = [], 0.0
    for place in places:
        name = _SHORT_NAMES[place]
        found += [
            element("rect", x=x, y=height - 13, width=11, height=11, class_=place.value),
            element("text", name, x=x + 15, y=height - 3, class_="axis"),
        ]
        x += 32 + 7 * len(name)
    names = " and ".join(marks)
    return [*found, element("text", f"dashed: {names}", x=x, y=height - 3, class_="axis")] if names else found


def _axis(scale: _Scale, y: int, text_of: _TextOf) -> list[Html]:
    middle = (scale.first + scale.last) // 2
    places = ((scale.first, "start"), (middle, "middle"), (scale.last, "end"))
    return [
        element("text", text_of(value), x=f"{scale.x(value):.1f}", y=y, text_anchor=anchor, class_="axis")
        for value, anchor in places
    ]


def _some(spans: Sequence[_Span], text_of: _TextOf) -> str:
    named = ", ".join(f"{text_of(start)} to {text_of(max(start, end - 1))}" for _, start, end in spans[:3])
    return named + (f" and {len(spans) - 3} more" if len(spans) > 3 else "")


def _clock_text(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
