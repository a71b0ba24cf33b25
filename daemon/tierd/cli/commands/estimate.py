"""``tierd estimate``: the expected cost of tiering a log dir."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.cli.costs import cost_json, cost_parts
from tierd.cli.moments import duration_s_of
from tierd.cli.options import JsonOption
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import PlainTable, plain_table
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.output.progress_line import progress_line
from tierd.cli.session import log_to_stderr
from tierd.config import format_duration
from tierd.cost import Bound, Cost, Plan, PriceList, TopicEstimate, estimate_log_dirs, load_prices
from tierd.sizes import human_size

_DAY_S = 86_400
_DEFAULT_PART_BYTES = 25 << 20


def estimate(
    log_dirs: Annotated[
        list[Path], typer.Argument(metavar="LOGDIR", exists=True, file_okay=False, help="The broker's log dirs.")
    ],
    *,
    retention: Annotated[
        str, typer.Option("--retention", metavar="DURATION", help="Time that the tier keeps records; -1: for ever.")
    ] = "365d",
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", min=1, max=32, help="Number of replicas of a partition; only leaders copy."
        ),
    ] = 1,
    compression_level: Annotated[
        int,
        typer.Option(
            "--zstd", min=0, max=19, metavar="LEVEL", help="Level of zstd to try on samples; 0: no compression."
        ),
    ] = 0,
    price_file: Annotated[
        Path | None,
        typer.Option("--price-file", metavar="FILE", help="File of prices; default: list prices of S3 Standard."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the size that the tier of a log dir's topics would have, and the cost of a month. Reads only.

    Needs no configuration and no store. The rate of a topic is computed from the times of its files. If the rate
    varies, or the files span less than a day, the answer is a range.

    Example: tierd estimate /var/lib/kafka/data --retention 365d --replication-factor 3 --zstd 3
    """
    log_to_stderr()
    prices = PriceList() if price_file is None else load_prices(price_file)
    plan = Plan(
        retention_days=_days(retention),
        replication_factor=replication_factor,
        part_size_bytes=_DEFAULT_PART_BYTES,
        compression_level=compression_level or None,
    )
    with progress_line("estimating") as report_progress:
        topics = estimate_log_dirs(log_dirs, prices, plan, on_progress=report_progress)
    if as_json:
        print_json({"currency": prices.currency, "topics": [_as_json(topic) for topic in topics]})
        return
    print_table(_table(topics, prices.currency))
    if short := [topic for topic in topics if topic.is_base_short]:
        for line in _short_base(short):
            print_line(line)
    if unknown := sum(topic.unknown_partitions for topic in topics):
        print_line(f"{unknown} partitions have one segment only: their pace is not known, and not counted")


def _days(retention: str) -> float | None:
    seconds = duration_s_of(retention, "--retention")
    return None if seconds < 0 else seconds / _DAY_S


def _table(topics: Sequence[TopicEstimate], currency: str) -> PlainTable:
    numbers = ("partitions", "to copy at once", "a day", "stored", "ratio", "a month")
    table = plain_table(("topic",), numbers, f"{currency}, at the pace of the files")
    for topic in topics:
        table.add_row(
            topic.topic,
            str(topic.partitions),
            human_size(round(topic.due_bytes)),
            *_ranges(topic.low, topic.high, f"{topic.ratio:.2f}"),
            cost_parts(topic.month),
        )
    due = human_size(round(sum(topic.due_bytes for topic in topics)))
    count = str(sum(topic.partitions for topic in topics))
    low, high = _sum([topic.low for topic in topics]), _sum([topic.high for topic in topics])
    table.add_row(
        "all", count, due, *_ranges(low, high, ""), cost_parts(sum((topic.month for topic in topics), Cost()))
    )
    return table


def _ranges(low: Bound, high: Bound, ratio: str) -> tuple[str, str, str, str]:
    """Return the columns a day, stored, ratio, a month."""
    return (
        _range(human_size(round(low.bytes_per_day)), human_size(round(high.bytes_per_day))),
        _range(human_size(round(low.stored_bytes)), human_size(round(high.stored_bytes))),
        ratio,
        _range(f"{low.month.total:.2f}", f"{high.month.total:.2f}"),
    )


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _sum(bounds: Sequence[Bound]) -> Bound:
    return Bound(
        sum(bound.bytes_per_day for bound in bounds),
        sum(bound.stored_bytes for bound in bounds),
        sum((bound.month for bound in bounds), Cost()),
    )


def _short_base(topics: Sequence[TopicEstimate]) -> tuple[str, ...]:
    shortest = min(topics, key=lambda topic: topic.base_days or 0.0)
    span = format_duration(max(1, round((shortest.base_days or 0.0) * _DAY_S)))
    return (
        f"too short to tell: the files of {len(topics)} topics span less than a day ({shortest.topic}: {span}).",
        "  Lower end: a day brings what is there now. Upper end: the files go on growing at that pace.",
        "  next: estimate again when the files span a week; copied or restored files have the times of the copy",
    )


def _as_json(topic: TopicEstimate) -> dict[str, JsonValue]:
    bounds: dict[str, JsonValue] = {
        name: asdict(bound) | {"month": cost_json(bound.month)}
        for name, bound in (("low", topic.low), ("high", topic.high))
    }
    return asdict(topic) | bounds | {"month": cost_json(topic.month), "is_base_short": topic.is_base_short}
