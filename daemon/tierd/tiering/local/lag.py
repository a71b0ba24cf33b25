"""Lag of the tier behind the local log: rolled segments that are not in the tier yet."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingSegment:
    """Rolled segment as it was last seen on disk.

    Attributes:
        end_offset: last offset, inclusive.
        modified_ms: wall clock of its last append.
    """

    end_offset: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class CopyLag:
    """Lag of the tier. ``oldest_ms`` is a wall clock, so that an age is right when it is computed."""

    segments: int = 0
    bytes: int = 0
    oldest_ms: int | None = None


def copy_lag(pending: Iterable[PendingSegment], *, copied_through: int) -> CopyLag:
    """Sum up the segments that end above ``copied_through``.

    A segment of which the tier has only the beginning counts whole, for it is copied whole; one that ends exactly
    at the frontier does not (remote-tiering 17.3 D).
    """
    behind = [segment for segment in pending if segment.end_offset > copied_through]
    return CopyLag(
        segments=len(behind),
        bytes=sum(segment.size_bytes for segment in behind),
        oldest_ms=min((segment.modified_ms for segment in behind), default=None),
    )
