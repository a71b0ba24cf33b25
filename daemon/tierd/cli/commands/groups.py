"""``tierd groups``: positions of consumer groups, from the catalogue in the bucket."""

from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, GroupPosition, GroupPositions, group_positions, run_in_loop
from tierd.cli.moments import timestamp_ms_of, utc_text
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption
from tierd.cli.output.display import print_table
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.layout import PlainTable, plain_table
from tierd.cli.output.printing import print_error, print_line
from tierd.cli.session import begin


def groups(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Consumer groups; none means all.")] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Moment to show: an ISO 8601 time; without it the newest positions."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """List the committed offsets of consumer groups, as the catalogue in the bucket has them at a moment.

    The command needs neither a daemon nor a broker. The lag is known for tiered partitions; it counts up to the high
    watermark of that moment. A restore sets no group above the high watermark: --json shows that offset too.

    Examples:
        tierd groups

        tierd groups billing --at 2026-11-21T15:00:00Z --json
    """
    at_ms = None if at is None else timestamp_ms_of(at)
    found = run_in_loop(group_positions(Deployment(begin(config), config), names or [], at_ms=at_ms))
    for problem in found.problems:
        print_error(f"tierd: {problem}; earlier positions stand in where there are any")
    if as_json or as_object:
        print_list([_as_json(each, found) for each in found.positions], as_object=as_object)
        return
    if found.positions:
        print_table(_table(found))
    else:
        print_line("no group has a committed offset in the catalogue at that moment")
    for node_id, taken_ms in sorted(found.taken_ms.items()):
        print_line(f"node {node_id}: positions of {utc_text(taken_ms)}")


def _table(found: GroupPositions) -> PlainTable:
    table = plain_table(("group", "partition"), ("offset", "high watermark", "lag"), "committed")
    for each in found.positions:
        table.add_row(
            each.group,
            str(each.partition),
            str(each.offset),
            _number(each.high_watermark),
            _number(each.lag),
            utc_text(each.committed_ms) if each.committed_ms >= 0 else "-",
        )
    return table


def _as_json(each: GroupPosition, found: GroupPositions) -> dict[str, JsonValue]:
    return {
        "group": each.group,
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "offset": each.offset,
        "restored_offset": each.restored_offset,
        "leader_epoch": each.leader_epoch,
        "metadata": each.metadata,
        "committed_ms": each.committed_ms,
        "high_watermark": each.high_watermark,
        "lag": each.lag,
        "taken_ms": max(found.taken_ms.values()),
    }


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
