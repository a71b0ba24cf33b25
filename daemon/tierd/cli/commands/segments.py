"""``tierd segments``: the remote segments of a partition."""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue
from rich.table import Table

from tierd.app import run_in_loop, tier_reader
from tierd.cli.display import answer_console, human_size, plain_table
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.session import begin
from tierd.config import TierdConfig
from tierd.model import RemoteLogSegmentMetadata, TopicPartition, uuid_to_text


def segments(partition: PartitionArgument, config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """List the remote segments of a partition with state, offsets, size and leader epochs, by start offset.

    Example: tierd segments orders-0 --json
    """
    found = run_in_loop(_read(begin(config), config, TopicPartition.parse(partition)))
    if as_json:
        print(json.dumps([_as_json(metadata) for metadata in found]))
    else:
        answer_console().print(_table(found))


async def _read(config: TierdConfig, config_file: Path, name: TopicPartition) -> list[RemoteLogSegmentMetadata]:
    async with tier_reader(config, config_file) as reader:
        located = await reader.locate(name)
        view = await reader.view(located.partition)
    return sorted(view.list(), key=lambda metadata: (metadata.start_offset, metadata.event_timestamp_ms))


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
    }


def _table(found: Sequence[RemoteLogSegmentMetadata]) -> Table:
    table = plain_table(("segment", "state"), ("start", "end", "size"), "epochs")
    for metadata in found:
        epochs = ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in metadata.segment_leader_epochs)
        table.add_row(
            uuid_to_text(metadata.segment.id),
            metadata.state.name,
            str(metadata.start_offset),
            str(metadata.end_offset),
            human_size(metadata.size_bytes),
            epochs,
        )
    return table
