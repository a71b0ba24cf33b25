"""Ages of queued segments, for topics that are copied late (KIP-1241; remote-tiering 10.5)."""

import os
from collections.abc import Sequence
from pathlib import Path

from tierd.errors import CorruptIndexError
from tierd.files import open_to_read
from tierd.log import PartitionScan, TimeIndex, data_bytes
from tierd.tiering.copy_plan import Age
from tierd.tiering.local.held_segment import HeldSegment, SegmentFile

_ENTRY_BYTES = 12  # of a time index (log-format 3.1)


def ages_of(due: Sequence[HeldSegment], scan: PartitionScan) -> list[Age]:
    """Ask the files of ``due``, ascending: for the last entry of each time index, and for the active segment's size.

    Blocking. A segment that the broker has deleted counts as old as can be: only its hold still keeps it.
    """
    live = {segment.base_offset for segment in scan.segments}
    behind = data_bytes(scan.segments[-1]) if scan.segments and scan.segments[-1].next_base_offset is None else 0
    ages = []
    for held in reversed(due):
        ages.append(Age(_largest_timestamp_ms(held) if held.base_offset in live else None, bytes_after=behind))
        behind += held.size_bytes
    return ages[::-1]


def _largest_timestamp_ms(held: HeldSegment) -> int:
    """Return the last timestamp of the time index, else the last append (Kafka: LogSegment.largestTimestamp)."""
    path = held.path(SegmentFile.TIME_INDEX)
    try:
        last = TimeIndex.from_bytes(_tail(path), held.base_offset, str(path)).entries if path else ()
    except (OSError, CorruptIndexError):
        last = ()
    return last[-1].timestamp_ms if last and last[-1].timestamp_ms >= 0 else held.modified_ms


def _tail(path: Path) -> bytes:
    with open_to_read(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _ENTRY_BYTES))
        return file.read()
