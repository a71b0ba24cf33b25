"""``tierd estimate``: what tiering a log dir would cost."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.table import Table
from rich.text import Text

from tierd.cli.costs import cost_json, cost_parts
from tierd.cli.display import answer_console, human_size, plain_table
from tierd.cli.options import JsonOption
from tierd.cli.progress import progress_line
from tierd.cli.session import log_to_stderr
from tierd.config import parse_duration_s
from tierd.cost import Cost, Plan, PriceList, TopicEstimate, estimate_log_dirs, load_prices

_DAY_S = 86_400
_DEFAULT_PART_BYTES = 25 << 20


def estimate(
    log_dirs: Annotated[
        list[Path], typer.Argument(metavar="LOGDIR", exists=True, file_okay=False, help="The broker's log dirs.")
    ],
    *,
    retention: Annotated[
        str, typer.Option("--retention", metavar="DURATION", help="How long the tier keeps records; -1: for ever.")
    ] = "365d",
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, max=32, help="Replicas of a partition; only leaders copy.")
    ] = 1,
    compression_level: Annotated[
        int, typer.Option("--zstd", min=0, max=19, metavar="LEVEL", help="Try compression on samples; 0: none.")
    ] = 0,
    price_file: Annotated[
        Path | None, typer.Option("--price-file", metavar="FILE", help="Prices; default: list prices of S3 Standard.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a tier would hold of a log dir's topics, and what a month of it would cost. Reads only.

    Needs no configuration and no store. The pace of a topic is taken from the times of its files.

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
    with progress_line("estimating") as tell:
        topics = estimate_log_dirs(log_dirs, prices, plan, tell=tell)
    if as_json:
        print(json.dumps({"currency": prices.currency, "topics": [_as_json(topic) for topic in topics]}))
        return
    answer_console().print(_table(topics, prices.currency))
    if unknown := sum(topic.unknown_partitions for topic in topics):
        print(f"{unknown} partitions have one segment only: their pace is not known, and not counted")


def _days(retention: str) -> float | None:
    try:
        seconds = parse_duration_s(retention)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--retention") from error
    return None if seconds < 0 else seconds / _DAY_S


def _table(topics: Sequence[TopicEstimate], currency: str) -> Table:
    numbers = ("partitions", "to copy at once", "a day", "stored", "ratio", "a month")
    table = plain_table(("topic",), numbers, currency)
    for topic in topics:
        table.add_row(
            Text(topic.topic),
            str(topic.partitions),
            human_size(round(topic.due_bytes)),
            human_size(round(topic.bytes_per_day)),
            human_size(round(topic.stored_bytes)),
            f"{topic.ratio:.2f}",
            f"{topic.month.total:.2f}",
            cost_parts(topic.month),
        )
    total = sum((topic.month for topic in topics), Cost())
    due, day, stored = (
        human_size(round(sum(getattr(topic, name) for topic in topics)))
        for name in ("due_bytes", "bytes_per_day", "stored_bytes")
    )
    count = str(sum(topic.partitions for topic in topics))
    table.add_row("all", count, due, day, stored, "", f"{total.total:.2f}", cost_parts(total))
    return table


def _as_json(topic: TopicEstimate) -> dict[str, JsonValue]:
    return asdict(topic) | {"month": cost_json(topic.month)}
