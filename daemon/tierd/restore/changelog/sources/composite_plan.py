"""The plan of a composite changelog: which offsets are read from the tier and which from the local log. Decisions only.

Remote copies of a compacted changelog are as old as their copy, and the local cleaner goes on. A key that was deleted
comes back if the tier has the value and the cleaner has dropped the tombstone (changelog-restore 3.4)::

    tier    ... k=v ...│                         R = last remote offset that is read
    local              │      (k deleted)  ...   C = first offset that the local cleaner has never cleaned
                       R                   C     legal only if R + 1 >= C
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Place(Enum):
    """The place that a part of a changelog is read from."""

    LOCAL = "local"
    REMOTE = "remote"


class Extent(NamedTuple):
    """The offsets ``[start_offset, end_offset)``."""

    start_offset: int
    end_offset: int

    @property
    def is_empty(self) -> bool:
        """Return True if there is no offset in it."""
        return self.end_offset <= self.start_offset


class PlannedPart(NamedTuple):
    """Offsets that are read from one place."""

    place: Place
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class CompositePlan:
    """Parts of a changelog, ascending, without overlap, perhaps with holes; empty without any offset."""

    parts: tuple[PlannedPart, ...]

    @property
    def start_offset(self) -> int | None:
        """Return the first offset; None without parts."""
        return self.parts[0].start_offset if self.parts else None

    def part_at(self, offset: int) -> PlannedPart | None:
        """Return the part that holds ``offset``, or else the next one behind it; None without one."""
        return next((part for part in self.parts if part.end_offset > offset), None)


def plan_composite(
    *, remote: Extent, local: Extent, log_start_offset: int, first_dirty_offset: int, is_compacted: bool
) -> CompositePlan:
    """Return the parts to read, local ones where the rules allow it.

    Args:
        remote: offsets of the lineage in the tier.
        local: offsets in the local log.
        log_start_offset: of the whole log; nothing below it is read.
        first_dirty_offset: C; 0 if the cleaner has never cleaned the local log.
        is_compacted: the rule R + 1 >= C applies.
    """
    if remote.is_empty or local.is_empty:
        extents = [(Place.REMOTE, remote), (Place.LOCAL, local)]
    elif is_compacted:
        extents = list(_compacted(remote, local, first_dirty_offset))
    else:
        extents = list(_local_first(remote, local))
    clipped = (PlannedPart(place, max(each.start_offset, log_start_offset), each.end_offset) for place, each in extents)
    return CompositePlan(tuple(part for part in clipped if part.start_offset < part.end_offset))


def _local_first(remote: Extent, local: Extent) -> Iterator[tuple[Place, Extent]]:
    yield Place.REMOTE, Extent(remote.start_offset, min(remote.end_offset, local.start_offset))
    yield Place.LOCAL, local
    yield Place.REMOTE, Extent(max(local.end_offset, remote.start_offset), remote.end_offset)


def _compacted(remote: Extent, local: Extent, first_dirty_offset: int) -> Iterator[tuple[Place, Extent]]:
    """Yield the parts of a compacted log, each copy of which is complete by itself from its own start to its end."""
    begins_local = max(local.start_offset, first_dirty_offset)  # R + 1
    if local.start_offset <= remote.start_offset and local.end_offset >= remote.end_offset:
        yield Place.LOCAL, local
    elif remote.end_offset >= local.end_offset:
        yield Place.REMOTE, remote
    elif begins_local <= remote.end_offset:
        yield Place.REMOTE, Extent(remote.start_offset, begins_local)
        yield Place.LOCAL, Extent(begins_local, local.end_offset)
    else:
        yield Place.LOCAL, local
