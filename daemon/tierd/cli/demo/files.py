"""The small files beside a segment, as a broker writes them (log-format 1.3 to 1.7, 3.1 to 3.3)."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tierd.kernels import crc32c
from tierd.model import TopicPartition

_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CHECKED_FROM = 6


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One producer's last batch and open transaction; -1 where there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    open_transaction_from: int


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return a producer snapshot, version 1."""
    packed = [
        _SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp_ms,
            entry.coordinator_epoch,
            entry.open_transaction_from,
        )
        for entry in entries
    ]
    checked = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", 1, crc32c(checked)) + checked


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the entries of a snapshot that ``encode_snapshot`` wrote.

    Raises:
        ValueError: it is damaged.
    """
    if len(data) < _SNAPSHOT_HEAD.size or _SNAPSHOT_HEAD.unpack_from(data)[1] != crc32c(data[_CHECKED_FROM:]):
        raise ValueError("damaged producer snapshot")
    return [ProducerEntry(*fields) for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :])]


def replace_file(path: Path, content: str) -> None:
    """Write ``content`` under a temporary name and rename it over ``path``, so that no reader sees a half."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(content)
    temporary.replace(path)


def write_offset_checkpoint(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace one of the offset checkpoints of a log dir."""
    lines = [f"{partition.topic} {partition.partition} {offset}\n" for partition, offset in offsets.items()]
    replace_file(path, f"0\n{len(lines)}\n{''.join(lines)}")
