"""``tierd cost``: past and expected cost of this broker's part of the tier."""

import os
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import broker_cost
from tierd.cli.costs import cost_json, cost_parts
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import PlainTable, plain_table
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.session import log_to_stderr
from tierd.config import PricedTierSettings, load_part
from tierd.cost import CostReport, RequestClass, TopicCost
from tierd.sizes import human_size


def cost(
    days: Annotated[int, typer.Option("--days", min=1, max=400, help="Number of past days to count.")] = 30,
    price_file: Annotated[
        Path | None, typer.Option("--price-file", metavar="FILE", help="File of prices, in place of cost.price_file.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Print the past cost of this broker's topics (requests, traffic, storage), and the cost of a month at that rate.

    The daemon records its requests once an hour. Each broker counts only the partitions that it leads: add the results
    of all brokers.

    Example: tierd cost --days 7 --price-file prices.yaml
    """
    log_to_stderr()
    settings = load_part(config, os.environ, PricedTierSettings, secrets=False)
    prices = price_file or settings.cost.price_file
    report = broker_cost(settings.state_dir, settings.remote, days=days, price_file=prices)
    if as_json:
        print_json(_as_json(report))
    elif not report.topics:
        print_line("no use is recorded yet: the daemon records its use once an hour")
    else:
        print_table(_table(report))
        print_line(f"{report.hours} hours counted; a month is 730 hours at their pace")


def _table(report: CostReport) -> PlainTable:
    numbers = ("stored", "uploaded", "downloaded", "puts", "lists", "gets", "past", "a month")
    table = plain_table(("topic",), numbers, report.currency)
    for topic in report.topics:
        table.add_row(
            topic.topic or "(none)",
            human_size(topic.stored_bytes),
            human_size(topic.uploaded_bytes),
            human_size(topic.downloaded_bytes),
            *(str(topic.requests.get(kind, 0)) for kind in (RequestClass.PUT, RequestClass.LIST, RequestClass.GET)),
            f"{topic.past.total:.2f}",
            f"{topic.month.total:.2f}",
            cost_parts(topic.month),
        )
    empty = [""] * 6
    table.add_row("all", *empty, f"{report.past.total:.2f}", f"{report.month.total:.2f}", cost_parts(report.month))
    return table


def _as_json(report: CostReport) -> dict[str, JsonValue]:
    return {
        "currency": report.currency,
        "hours": report.hours,
        "past": cost_json(report.past),
        "month": cost_json(report.month),
        "topics": [_topic_json(topic) for topic in report.topics],
    }


def _topic_json(topic: TopicCost) -> dict[str, JsonValue]:
    return {
        "topic": topic.topic,
        "requests": {kind.value: count for kind, count in topic.requests.items()},
        "uploaded_bytes": topic.uploaded_bytes,
        "downloaded_bytes": topic.downloaded_bytes,
        "stored_bytes": topic.stored_bytes,
        "past": cost_json(topic.past),
        "month": cost_json(topic.month),
    }
