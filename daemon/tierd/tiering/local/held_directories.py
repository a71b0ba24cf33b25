"""Names of held segments in the hold directory, and the offsets in them. No file of a segment is read.

::

    <hold dir>/<topic id>/<partition>/<20-digit base>-<next base>-<inode>.<kind of file>

What these names have in common is the stem of the segment. Earlier versions made a directory ``<base>-<next base>`` for
each segment.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from tierd.model import OffsetRange, TopicIdPartition, uuid_to_text
from tierd.tiering.local.held_segment import LINEAGE_FILE, HeldSegment, SegmentFile

UNFINISHED_SUFFIX = ".tmp"
LINK_SUFFIXES: Final = (LINEAGE_FILE, *(file.value for file in SegmentFile))
"""Suffixes of the links of a segment. The lineage is linked last and removed first: a stem without one is no hold."""

_KINDS: Final = "|".join(map(re.escape, LINK_SUFFIXES))
_LINK: Final = re.compile(
    rf"(?P<stem>[0-9]{{20}}-[0-9]+-[0-9]+)\.(?:{_KINDS}|{LINEAGE_FILE}\{UNFINISHED_SUFFIX})", re.ASCII
)
_DIRECTORY: Final = re.compile(r"[0-9]+-[0-9]+", re.ASCII)


def stem_of(segment: HeldSegment) -> str:
    """Return the stem of a segment: its base offset, its exclusive end and the inode of its log.

    A log that compaction puts in the place of another one is another inode, and both may be held for a while.
    """
    return f"{segment.base_offset:020d}-{segment.next_base_offset}-{segment.log_file.inode}"


def offsets_of(name: str) -> tuple[int, int]:
    """Return base offset and exclusive end of the segment whose stem or directory has that name.

    Raises:
        ValueError: the name is not one of ours.
    """
    base, next_base = name.split("-")[:2]
    return int(base), int(next_base)


def held_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the held segments in the folder of a partition, and the links of unfinished holds. Blocking.

    A segment is named by its stem; one that an earlier version held, by its directory. They ascend by base offset, and
    of two with the same one the second reaches as far or further.

    Raises:
        OSError: the folder cannot be listed.
    """
    names = os.listdir(folder)  # noqa: PTH208 - many links
    links = [(match["stem"], name) for name in names if (match := _LINK.fullmatch(name)) is not None]
    whole = {stem for stem, name in links if name.endswith(LINEAGE_FILE)}
    unfinished = [folder / name for stem, name in links if stem not in whole or name.endswith(UNFINISHED_SUFFIX)]
    directories = [name for name in names if _DIRECTORY.fullmatch(name)]
    ascending = sorted((*whole, *directories), key=lambda name: (offsets_of(name), name))
    return [folder / name for name in ascending], unfinished


def linked_segments(hold_dir: Path, partition: TopicIdPartition) -> list[Path]:
    """Return the segments of a partition that are held by links, ascending, as ``held_in`` names them. Blocking.

    Raises:
        OSError: the hold directory cannot be listed.
    """
    folder = hold_dir / uuid_to_text(partition.topic_id) / str(partition.partition)
    return held_in(folder)[0] if folder.is_dir() else []


def linked_offsets(hold_dir: Path, partition: TopicIdPartition) -> tuple[OffsetRange, ...]:
    """Return the offsets of the segments that are held by links, as their names say. Blocking.

    Segments that a daemon holds open are not among them. Where the hold directory cannot be listed, none is known.
    """
    found = []
    with contextlib.suppress(OSError, ValueError):
        for path in linked_segments(hold_dir, partition):
            base, next_base = offsets_of(path.name)
            found.append(OffsetRange(base, next_base - 1))
    return tuple(found)


def remove_links(stem: str) -> None:
    """Remove the links of a segment; one that is gone, or cannot be removed, does not keep the others. Blocking."""
    for suffix in LINK_SUFFIXES:
        with contextlib.suppress(OSError):
            os.unlink(f"{stem}.{suffix}")  # noqa: PTH108 - six for each segment of tens of thousands
