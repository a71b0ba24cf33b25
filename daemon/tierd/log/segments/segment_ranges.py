"""Lookup of a log's segments by an offset or by a range of offsets (Kafka: LogSegments)."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

_base_offset = attrgetter("base_offset")


class HasBaseOffset(Protocol):
    """A segment of any kind."""

    @property
    def base_offset(self) -> int:
        """Return the first offset of the segment."""


SegmentT = TypeVar("SegmentT", bound=HasBaseOffset)


def floor_index(segments: Sequence[HasBaseOffset], offset: int) -> int:
    """Return the index of the last segment whose base offset is at or below ``offset``; -1 without one."""
    return bisect_right(segments, offset, key=_base_offset) - 1


def segment_at(segments: Sequence[SegmentT], base_offset: int) -> SegmentT | None:
    """Return the segment that begins at exactly ``base_offset``; None without one."""
    index = floor_index(segments, base_offset)
    return segments[index] if index >= 0 and segments[index].base_offset == base_offset else None


def segments_from(segments: Sequence[SegmentT], offset: int) -> Sequence[SegmentT]:
    """Return the segments from the one that holds ``offset`` on; all of them where ``offset`` is below the first."""
    return segments[max(floor_index(segments, offset), 0) :]


def segments_between(segments: Sequence[SegmentT], from_offset: int, to_offset: int) -> Sequence[SegmentT]:
    """Return the segments that ``[from_offset, to_offset)`` touches, from the one that holds ``from_offset`` on.

    Raises:
        ValueError: the range ends before it begins.
    """
    if from_offset > to_offset:
        raise ValueError(f"a range cannot begin at {from_offset} and end at {to_offset}")
    if from_offset == to_offset:
        return ()
    first = max(floor_index(segments, from_offset), 0)
    return segments[first : bisect_left(segments, to_offset, key=_base_offset)]
