"""``tierd deletions``: the ledger of deletions from the tier, with their reasons."""

import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from tierd.cli.asking import state_dir_of
from tierd.cli.completion import partition_names
from tierd.cli.moments import timestamp_ms_of
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption
from tierd.cli.output.display import print_table
from tierd.cli.output.json_lists import printed_lines
from tierd.cli.output.layout import plain_table
from tierd.config import parse_duration_s
from tierd.model import TopicPartition
from tierd.sizes import human_size
from tierd.tiering import LedgerEntry, read_ledger


def deletions(
    partition: Annotated[
        str | None,
        typer.Argument(
            metavar="TP", help="A partition, topic-partition; none means all.", autocompletion=partition_names
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="First time to list: 24h for the last day, or an ISO 8601 time."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """List the segments that this tierd deleted from the tier or took back, with the reasons, oldest first.

    A line is written before its step, so that every deletion has one; "failed" says that a step was not completed.

    Example: tierd deletions orders-0 --since 24h --json
    """
    name = TopicPartition.parse(partition) if partition else None
    entries = read_ledger(state_dir_of(config), name, since_ms=_since_ms(since))
    if as_json or as_object:
        with printed_lines(as_object=as_object) as print_item:
            for entry in entries:
                print_item(asdict(entry))
    else:
        _print(entries)


def _since_ms(text: str | None) -> int:
    if text is None:
        return 0
    try:
        return round((time.time() - parse_duration_s(text)) * 1000)
    except ValueError:
        return timestamp_ms_of(text)


def _print(entries: Iterable[LedgerEntry]) -> None:
    table = plain_table(("when", "step", "partition", "segment", "reason"), ("start", "end", "size"), "why")
    for entry in entries:
        table.add_row(
            datetime.fromtimestamp(entry.time_ms / 1000, UTC).isoformat(timespec="seconds"),
            entry.step,
            entry.partition,
            entry.segment_id,
            entry.reason,
            str(entry.start_offset),
            str(entry.end_offset),
            human_size(entry.size_bytes),
            entry.detail,
        )
    if table.row_count:
        print_table(table)
