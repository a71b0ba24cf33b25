"""``tierd topics``: the inventory of the tier, by topic or by partition."""

import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from uuid import UUID

import typer
from pydantic import JsonValue

import tierd.app
import tierd.config
from tierd.app import run_in_loop, tier_inventory
from tierd.cli.completion import topic_names
from tierd.cli.moments import utc_text
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption
from tierd.cli.output.display import print_table
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.layout import PlainTable, plain_table
from tierd.cli.output.printing import print_error, print_line
from tierd.cli.output.progress_line import progress_bar
from tierd.cli.session import begin, begin_with_metadata
from tierd.model import uuid_to_text
from tierd.sizes import human_size
from tierd.tiering import ManifestFacts, PartitionInventory, TierContents, sum_contents

_COST_DAYS: Final = 30


class SortKey(StrEnum):
    """Order of the lines."""

    NAME = "name"
    SIZE = "size"
    SEGMENTS = "segments"
    OFFSETS = "offsets"
    OLDEST = "oldest"
    NEWEST = "newest"


class _Line(NamedTuple):
    """One line of the answer: a topic with a topic id, or one of its partitions.

    Attributes:
        place: the first fields of the JSON object.
    """

    name: str
    place: dict[str, JsonValue]
    contents: TierContents


class _Months(NamedTuple):
    """Cost of a month, by the name of the topic."""

    currency: str
    by_topic: dict[str, float]


_ORDERS: Final[Mapping[SortKey, Callable[[_Line], int]]] = {
    SortKey.NAME: lambda _: 0,  # the lines are in this order
    SortKey.SIZE: lambda line: -line.contents.size_bytes,
    SortKey.SEGMENTS: lambda line: -line.contents.segments,
    SortKey.OFFSETS: lambda line: -line.contents.offsets,
    SortKey.OLDEST: lambda line: 1 << 63 if line.contents.oldest_ms is None else line.contents.oldest_ms,
    SortKey.NEWEST: lambda line: 1 if line.contents.newest_ms is None else -line.contents.newest_ms,
}


def topics(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN",
            help="Names of topics, with * and ? for any characters; none means all.",
            autocompletion=topic_names,
        ),
    ] = None,
    *,
    by_partition: Annotated[bool, typer.Option("--partitions", "-p", help="Print a line for each partition.")] = False,
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Also read the manifest of each segment from the object store: records, stored bytes."
        ),
    ] = False,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Also show what a month of a topic costs, as tierd cost; not by partition."),
    ] = False,
    sort: Annotated[
        SortKey, typer.Option("--sort", help="By name; or the largest, the oldest or the newest first.")
    ] = SortKey.NAME,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Print the first N lines.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """List how much of each topic is in the tier, and how old it is.

    The answer is that of the metadata; neither a daemon nor the object store is asked. Oldest is the smallest of the
    segments' largest record timestamps, newest the largest. Offsets count each offset once, also those of markers and
    of records that compaction removed: --records counts the records. tierd segments lists the segments of a partition,
    tierd cost what a topic costs.

    Examples:
        tierd topics --sort size --limit 10

        tierd topics 'orders*' --partitions

        tierd topics payments --records --json

        tierd topics --cost --sort size
    """
    if cost and by_partition:
        raise typer.BadParameter("--cost is known by topic: leave out --partitions")
    with progress_bar("reading the tier") as report:

        def on_partition(done: int, total: int) -> None:
            report(done, total, f"{done} of {total} partitions")

        found = run_in_loop(_inventory(config, patterns or [], reads_manifests=records, on_partition=on_partition))
    every = [_partition_line(each) for each in found] if by_partition else _topic_lines(found)
    shown = sorted(every, key=_ORDERS[sort])[:limit]
    months = _months(config) if cost else None
    if as_json or as_object:
        print_list([_as_json(line) | _cost_json(line, months) for line in shown], as_object=as_object)
        return
    total = sum_contents(line.contents for line in every)
    if shown:
        print_table(_table(shown, total, months, by_partition=by_partition))
    else:
        print_line("the tier has no topic yet")
    unread = 0 if total.facts is None else total.segments - total.facts.manifests
    if unread:
        print_error(f"tierd: manifests that could not be read, and are not counted: {unread}; run tierd verify")


async def _inventory(
    config: Path, patterns: list[str], *, reads_manifests: bool, on_partition: Callable[[int, int], None]
) -> list[PartitionInventory]:
    if reads_manifests:
        deployment = tierd.app.Deployment(begin(config), config)
        return await tierd.app.recorded_inventory(deployment, patterns, on_partition=on_partition)
    return await tier_inventory(begin_with_metadata(config), patterns, on_partition=on_partition)


def _months(config: Path) -> _Months:
    """Return the cost of a month of each topic that this broker leads, at the rate of the last 30 days.

    Raises:
        ConfigError: the file, or its price file, is wrong.
        StateDirError: the record of the use cannot be read.
    """
    settings = tierd.config.load_part(config, os.environ, tierd.config.PricedTierSettings, secrets=False)
    report = tierd.app.broker_cost(
        settings.state_dir, settings.remote, days=_COST_DAYS, price_file=settings.cost.price_file
    )
    return _Months(report.currency, {each.topic: each.month.total for each in report.topics})


def _topic_lines(found: Sequence[PartitionInventory]) -> list[_Line]:
    def incarnation(each: PartitionInventory) -> tuple[str, UUID]:
        return each.partition.topic, each.partition.topic_id

    lines = []
    for (name, topic_id), group in groupby(sorted(found, key=incarnation), key=incarnation):
        contents = sum_contents(each.contents for each in group)
        place: dict[str, JsonValue] = {"topic": name, "topic_id": uuid_to_text(topic_id)}
        lines.append(_Line(name, place | {"partitions": contents.partitions}, contents))
    return lines


def _partition_line(each: PartitionInventory) -> _Line:
    partition = each.partition
    place: dict[str, JsonValue] = {
        "topic": partition.topic,
        "topic_id": uuid_to_text(partition.topic_id),
        "partition": partition.partition,
        "start_offset": each.start_offset,
        "end_offset": each.end_offset,
    }
    return _Line(str(partition.topic_partition), place, each.contents)


def _table(shown: Sequence[_Line], total: TierContents, months: _Months | None, *, by_partition: bool) -> PlainTable:
    first = ("start", "end") if by_partition else ("partitions",)
    facts = ("records", "stored", "ratio") if total.facts is not None else ()
    priced = () if months is None else (f"{months.currency} a month",)
    numbers = (*first, "segments", "size", *facts, "offsets", "in grace", *priced)
    table = plain_table(("partition" if by_partition else "topic",), numbers, "oldest, newest")
    for line in shown:
        ends = (line.place.get("start_offset"), line.place.get("end_offset"))
        places = tuple("-" if end is None else str(end) for end in ends) if by_partition else _partitions(line.contents)
        month = () if months is None else (_amount(months.by_topic.get(line.name)),)
        table.add_row(line.name, *places, *_cells(line.contents, month))
    if len(shown) > 1:
        table.add_row("all", *(("", "") if by_partition else _partitions(total)), *_cells(total, ("",) * len(priced)))
    return table


def _partitions(contents: TierContents) -> tuple[str]:
    return (str(contents.partitions),)


def _amount(money: float | None) -> str:
    return "-" if money is None else f"{money:.2f}"


def _cost_json(line: _Line, months: _Months | None) -> dict[str, JsonValue]:
    if months is None:
        return {}
    return {"month_cost": months.by_topic.get(line.name), "currency": months.currency}


def _cells(contents: TierContents, month: tuple[str, ...]) -> tuple[str, ...]:
    facts = () if contents.facts is None else _fact_cells(contents.facts)
    times = [utc_text(each) for each in (contents.oldest_ms, contents.newest_ms) if each is not None]
    return (
        str(contents.segments),
        human_size(contents.size_bytes),
        *facts,
        str(contents.offsets),
        human_size(contents.expired_bytes) if contents.expired_segments else "-",
        *month,
        ", ".join(times) or "-",
    )


def _fact_cells(facts: ManifestFacts) -> tuple[str, ...]:
    ratio = f"{facts.stored_bytes / facts.log_bytes:.2f}" if facts.log_bytes else "-"
    return str(facts.record_count), human_size(facts.stored_bytes), ratio


def _as_json(line: _Line) -> dict[str, JsonValue]:
    contents, facts = line.contents, line.contents.facts
    return {
        **line.place,
        "segments": contents.segments,
        "size_bytes": contents.size_bytes,
        "offsets": contents.offsets,
        "oldest_ms": contents.oldest_ms,
        "newest_ms": contents.newest_ms,
        "unfinished_segments": contents.unfinished_segments,
        "expired_segments": contents.expired_segments,
        "expired_bytes": contents.expired_bytes,
        "manifests": None if facts is None else facts.manifests,
        "records": None if facts is None else facts.record_count,
        "stored_bytes": None if facts is None else facts.stored_bytes,
        "log_bytes": None if facts is None else facts.log_bytes,
    }
