"""``tierd segments``: list the remote segments of a partition."""

import contextlib
from collections.abc import Sequence
from typing import Annotated

import typer
from pydantic import JsonValue

import tierd.app
from tierd.app import HostMetadata, row_reader, run_in_loop
from tierd.cli.moments import utc_text
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption, PartitionArgument
from tierd.cli.output.display import print_table
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.layout import PlainTable, plain_table
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.session import begin_with_metadata
from tierd.metadata import SegmentChange
from tierd.model import RemoteLogSegmentMetadata, TopicPartition, uuid_to_text
from tierd.sizes import human_size

FOLLOW_INTERVAL_S = 1.0


def segments(
    partition: PartitionArgument,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Continue with every change, until Ctrl-C or the end of the partition."),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """List the remote segments of a partition with state, offsets, size and leader epochs, by start offset.

    With --follow there is a line for every segment, then a line for every change; changes of one segment within a
    second may be one line. As JSON a line is an object with revision, before and after; before is null for a new
    segment, after is null for a removed row.

    Examples:
        tierd segments orders-0 --json

        tierd segments orders-0 --follow
    """
    if follow and as_object:
        raise typer.BadParameter("--follow has no end, so one object would have no end: use --json")
    if follow:
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the regular end
            run_in_loop(_follow(begin_with_metadata(config), TopicPartition.parse(partition), as_json=as_json))
        return
    found = run_in_loop(_read(begin_with_metadata(config), TopicPartition.parse(partition)))
    if as_json or as_object:
        print_list([_as_json(metadata) for metadata in found], as_object=as_object)
    else:
        print_table(_table(found))


async def _read(host: HostMetadata, name: TopicPartition) -> list[RemoteLogSegmentMetadata]:
    async with row_reader(host) as reader:
        located = await reader.locate(name)
        view = await reader.view(located.partition)
    return sorted(view.list(), key=lambda metadata: (metadata.start_offset, metadata.event_timestamp_ms))


async def _follow(host: HostMetadata, name: TopicPartition, *, as_json: bool) -> None:
    async with row_reader(host) as reader:
        located = await reader.locate(name)
    feed = tierd.app.follow_segments(host, located.partition, interval_s=FOLLOW_INTERVAL_S)
    async with contextlib.aclosing(feed) as changes:
        async for change in changes:
            _print_change(change, as_json=as_json)


def _print_change(change: SegmentChange, *, as_json: bool) -> None:
    if as_json:
        print_json(_change_as_json(change), flush=True)
    else:
        print_line(_change_line(change), flush=True)


def _change_as_json(change: SegmentChange) -> dict[str, JsonValue]:
    before, after = change.before, change.after
    return {
        "revision": change.revision,
        "before": None if before is None else _as_json(before),
        "after": None if after is None else _as_json(after),
    }


def _change_line(change: SegmentChange) -> str:
    metadata = change.after or change.before
    assert metadata is not None
    was = f"{change.before.state.name} -> " if change.before else ""
    why = f" ({change.after.soft_delete.reason})" if change.after and change.after.soft_delete else ""
    return (
        f"{uuid_to_text(metadata.segment.id)}  {metadata.start_offset}-{metadata.end_offset}  "
        f"{human_size(metadata.size_bytes)}  {was}{change.after.state.name if change.after else 'forgotten'}{why}"
    )


def _as_json(metadata: RemoteLogSegmentMetadata) -> dict[str, JsonValue]:
    return {
        "segment_id": uuid_to_text(metadata.segment.id),
        "topic_id": uuid_to_text(metadata.segment.topic_id_partition.topic_id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "state": metadata.state.name,
        "size_bytes": metadata.size_bytes,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "segment_leader_epochs": [[entry.epoch, entry.start_offset] for entry in metadata.segment_leader_epochs],
        "leader_epoch": metadata.leader_epoch,
        "broker_id": metadata.broker_id,
        "event_timestamp_ms": metadata.event_timestamp_ms,
        "soft_delete": _soft_delete_as_json(metadata),
    }


def _state(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the state; for a segment that goes also why, and until when tierd undelete can take it back."""
    soft = metadata.soft_delete
    if soft is None:
        return metadata.state.name
    return f"{metadata.state.name} ({soft.reason}, kept until {utc_text(soft.delete_after_ms)})"


def _soft_delete_as_json(metadata: RemoteLogSegmentMetadata) -> JsonValue:
    """Return why a segment goes, ``replaced`` if a compacted one took its place, and until when its objects stay."""
    soft = metadata.soft_delete
    return None if soft is None else {"reason": soft.reason, "delete_after_ms": soft.delete_after_ms}


def _table(found: Sequence[RemoteLogSegmentMetadata]) -> PlainTable:
    table = plain_table(("segment", "state"), ("start", "end", "size"), "epochs")
    for metadata in found:
        epochs = ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in metadata.segment_leader_epochs)
        table.add_row(
            uuid_to_text(metadata.segment.id),
            _state(metadata),
            str(metadata.start_offset),
            str(metadata.end_offset),
            human_size(metadata.size_bytes),
            epochs,
        )
    return table
