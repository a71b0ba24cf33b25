"""``tierd explain``: the place of one record, and the reason."""

from dataclasses import asdict
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import explain_offset, run_in_loop
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.session import begin_with_logs
from tierd.model import TopicPartition
from tierd.tiering import Explanation, OffsetPlace

_UNREADABLE = frozenset({OffsetPlace.EXPIRED, OffsetPlace.LOST, OffsetPlace.NOT_WRITTEN})


def explain(
    partition: PartitionArgument,
    offset: Annotated[int, typer.Argument(min=0, metavar="OFFSET", help="The offset of a record.")],
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show where a record is (local file, queued, remote object, expired, lost, never written) and why.

    Exits with 1 if no reader can get the record.

    Example: tierd explain orders-0 1234
    """
    host, name = begin_with_logs(config), TopicPartition.parse(partition)
    found = run_in_loop(explain_offset(host, name, offset))
    if as_json:
        facts: dict[str, JsonValue] = asdict(found) | {"place": found.place.value, "attempts": list(found.attempts)}
        print_json(facts)
    else:
        print_line(f"{partition} offset {offset}: {found.place.value}: {found.why}")
        for label, value in _details(found).items():
            print_line(f"  {label}: {value}")
    if found.place in _UNREADABLE:
        raise typer.Exit(ExitCode.NO)


def _details(found: Explanation) -> dict[str, str]:
    details = {
        "leader epoch": None if found.leader_epoch is None else str(found.leader_epoch),
        "local file": found.local_file,
        "remote object": found.remote_key,
        "segment": found.segment_id,
        "other attempts": ", ".join(found.attempts) or None,
    }
    return {label: value for label, value in details.items() if value is not None}
