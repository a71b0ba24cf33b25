"""``tierd offsets``: the first and last offsets of a partition in both tiers, and the offset of a time."""

from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import list_offsets, run_in_loop
from tierd.cli.display import plain_table, print_table
from tierd.cli.moments import timestamp_ms_of
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.printing import print_json
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.tiering import ListedOffset


def offsets(
    partition: PartitionArgument,
    *,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="T", help="Also list the first record at or after T: ISO 8601, or milliseconds."
        ),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """List the offsets that a consumer can ask for by name, with the leader epochs that wrote them; -1: there is none.

    earliest: the first record in either tier; local: the first record on local disk; tiered: the last record that was
    copied; pending: the first record that is not copied; latest: the offset after the last record.

    Example: tierd offsets orders-0 --time 2024-05-01T12:00:00Z --json
    """
    timestamp_ms = None if time is None else timestamp_ms_of(time)
    settings, name = begin(config), TopicPartition.parse(partition)
    found = run_in_loop(list_offsets(settings, config, name, timestamp_ms=timestamp_ms))
    if as_json:
        print_json({which: _as_json(listed) for which, listed in found.items()})
        return
    table = plain_table(("offset",), ("value", "epoch"), "time of the record")
    for which, listed in found.items():
        shown = str(listed.timestamp_ms) if listed.timestamp_ms >= 0 else ""
        table.add_row(which, str(listed.offset), str(listed.leader_epoch), shown)
    print_table(table)


def _as_json(listed: ListedOffset) -> dict[str, JsonValue]:
    return {"offset": listed.offset, "leader_epoch": listed.leader_epoch, "timestamp_ms": listed.timestamp_ms}
