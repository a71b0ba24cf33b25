"""``tierd cat``: records as a consumer would read them."""

import asyncio
import contextlib
from typing import Annotated, NamedTuple

import typer

from tierd.app import Deployment, found_offset, run_in_loop, tier_reader
from tierd.cli.moments import timestamp_ms_of
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.output.printing import print_bytes
from tierd.cli.output.record_lines import as_text_line
from tierd.cli.session import begin
from tierd.log import as_json_line
from tierd.model import IsolationLevel, TopicPartition

_WRITTEN_AT_ONCE_BYTES = 256 * 1024


class Since(NamedTuple):
    """A time to begin at."""

    timestamp_ms: int


def cat(
    partition: PartitionArgument,
    *,
    from_offset: Annotated[
        int | None, typer.Option("--from", min=0, metavar="O", help="First offset; default: the log start.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time", metavar="T", help="Begin with the first record at or after T: ISO 8601, or milliseconds."
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to", min=0, metavar="O", help="Last offset, inclusive; default: the end.")
    ] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out aborted and undecided transactions.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Print the records of a partition, local and remote together, in order of offset.

    One line a record: offset, timestamp, key and value between tabs, or one JSON object with --json, where
    key, value and header values are base64 or null.

    Examples:
        tierd cat orders-0 --from 1000 --to 1099 --committed

        tierd cat orders-0 --from-time 2024-05-01T12:00:00Z
    """
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    end = None if to_offset is None else to_offset + 1
    if from_time is not None and from_offset is not None:
        raise typer.BadParameter("--from and --from-time exclude each other; give one")
    first = from_offset if from_time is None else Since(timestamp_ms_of(from_time))
    deployment, name = Deployment(begin(config), config), TopicPartition.parse(partition)
    run_in_loop(_print(deployment, name, first=first, end_offset=end, isolation=isolation, as_json=as_json))


async def _print(
    deployment: Deployment,
    name: TopicPartition,
    *,
    first: int | Since | None,
    end_offset: int | None,
    isolation: IsolationLevel,
    as_json: bool,
) -> None:
    line_of = as_json_line if as_json else as_text_line
    async with tier_reader(deployment) as reader:
        task = reader.fetch_task(await reader.locate(name))
        if isinstance(first, Since):
            youngest = await found_offset(reader.fetches, task, first.timestamp_ms)
            if youngest is None:
                return  # no record is that young
            first = youngest.offset
        pending = bytearray()
        try:
            async with contextlib.aclosing(task.records(first, end_offset, isolation)) as records:
                async for record in records:
                    pending += line_of(record)
                    if len(pending) >= _WRITTEN_AT_ONCE_BYTES:
                        await _write(pending)
        finally:
            await _write(pending)  # print the records that were read before a failure, too


async def _write(pending: bytearray) -> None:
    """Write to standard output in a thread, because its reader may be slow; at most one piece is in memory."""
    data = bytes(pending)
    pending.clear()
    if data:
        await asyncio.to_thread(print_bytes, data)
