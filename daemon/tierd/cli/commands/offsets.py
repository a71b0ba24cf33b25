"""``tierd offsets``: the first and last offsets of a partition in each tier, and the offset of a point in time."""

from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import list_offsets, run_in_loop
from tierd.cli.moments import timestamp_ms_of
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_json
from tierd.cli.session import begin_with_logs
from tierd.model import TimestampOffset, TopicPartition


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
    """List the offsets that a consumer can request by name, with their leader epochs; -1: there is none.

    earliest: the first record in either tier; local: the first record on local disk; tiered: the last record that was
    copied; pending: the first record that is not copied; latest: the offset after the last record.

    Example: tierd offsets orders-0 --time 2024-05-01T12:00:00Z --json
    """
    timestamp_ms = None if time is None else timestamp_ms_of(time)
    host, name = begin_with_logs(config), TopicPartition.parse(partition)
    answers = run_in_loop(list_offsets(host, name, timestamp_ms=timestamp_ms))
    found = {which: _filled(answer) for which, answer in answers.items()}
    if as_json:
        print_json({which: _as_json(each) for which, each in found.items()})
        return
    table = plain_table(("offset",), ("value", "epoch"), "time of the record")
    for which, each in found.items():
        shown = str(each.timestamp_ms) if each.timestamp_ms >= 0 else ""
        table.add_row(which, str(each.offset), str(each.leader_epoch), shown)
    print_table(table)


def _as_json(found: TimestampOffset) -> dict[str, JsonValue]:
    return {"offset": found.offset, "leader_epoch": found.leader_epoch, "timestamp_ms": found.timestamp_ms}


def _filled(found: TimestampOffset | None) -> TimestampOffset:
    """Return ``found`` with -1 for each part that is not known."""
    if found is None:
        return TimestampOffset(-1, -1, -1)
    return found._replace(leader_epoch=-1) if found.leader_epoch is None else found
