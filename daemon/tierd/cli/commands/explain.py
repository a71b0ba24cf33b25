"""``tierd explain``: the place of one record, and the reason."""

from dataclasses import asdict
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, explain_offset, run_in_loop, tier_reader
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.printing import print_json, print_line
from tierd.cli.session import begin
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
    found = run_in_loop(_explain(Deployment(begin(config), config), TopicPartition.parse(partition), offset))
    if as_json:
        facts: dict[str, JsonValue] = asdict(found) | {"place": found.place.value, "attempts": list(found.attempts)}
        print_json(facts)
    else:
        print_line(f"{partition} offset {offset}: {found.place.value}: {found.why}")
        for label, value in _details(found).items():
            print_line(f"  {label}: {value}")
    if found.place in _UNREADABLE:
        raise typer.Exit(ExitCode.NO)


async def _explain(deployment: Deployment, name: TopicPartition, offset: int) -> Explanation:
    async with tier_reader(deployment) as reader:
        return await explain_offset(reader, await reader.locate(name), offset)


def _details(found: Explanation) -> dict[str, str]:
    details = {
        "leader epoch": None if found.leader_epoch is None else str(found.leader_epoch),
        "local file": found.local_file,
        "remote object": found.remote_key,
        "segment": found.segment_id,
        "other attempts": ", ".join(found.attempts) or None,
    }
    return {label: value for label, value in details.items() if value is not None}
