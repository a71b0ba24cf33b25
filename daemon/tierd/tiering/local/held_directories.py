"""Directories of held segments, one a segment, and the offsets in their names. No file of a segment is read."""

import contextlib
from pathlib import Path

from tierd.model import OffsetRange, TopicIdPartition, uuid_to_text

UNFINISHED_SUFFIX = ".tmp"


def linked_segments(hold_dir: Path, partition: TopicIdPartition) -> list[Path]:
    """Return the directories of the segments of a partition that are held by links, ascending by name. Blocking.

    Raises:
        OSError: the hold directory cannot be listed.
    """
    folder = hold_dir / uuid_to_text(partition.topic_id) / str(partition.partition)
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("*-*") if not path.name.endswith(UNFINISHED_SUFFIX))


def linked_offsets(hold_dir: Path, partition: TopicIdPartition) -> tuple[OffsetRange, ...]:
    """Return the offsets of the segments that are held by links, as the names of their directories say. Blocking.

    Segments that a daemon holds open are not among them. Where the hold directory cannot be listed, none is known.
    """
    found = []
    with contextlib.suppress(OSError, ValueError):
        for path in linked_segments(hold_dir, partition):
            base, next_base = (int(part) for part in path.name.split("-"))
            found.append(OffsetRange(base, next_base - 1))
    return tuple(found)
