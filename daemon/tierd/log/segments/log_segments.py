"""LogSegments: the segments of a log by base offset, and their state for other threads (Kafka: LogSegments)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from tierd.log.files.partition_scan import SegmentFiles
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.segment_ranges import floor_index, segment_at, segments_between

_base_offset = attrgetter("base_offset")


class LogSegments:
    """Segments by base offset. The writer of the log alone changes them; ``values`` is replaced as a whole."""

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self.values: tuple[LogSegment, ...] = tuple(sorted(segments, key=_base_offset))
        """Ascending; the last one is active."""

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.values)

    def __contains__(self, base_offset: int) -> bool:
        return self.get(base_offset) is not None

    @property
    def first(self) -> LogSegment | None:
        """Return the oldest segment."""
        return self.values[0] if self.values else None

    @property
    def last(self) -> LogSegment | None:
        """Return the newest segment."""
        return self.values[-1] if self.values else None

    @property
    def active(self) -> LogSegment:
        """Return the segment that is appended to; a loaded log always has one."""
        return self.values[-1]

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Return the base offset of every segment, ascending."""
        return tuple(map(_base_offset, self.values))

    @property
    def size_bytes(self) -> int:
        """Return the size of all log files together, buffered bytes included."""
        return sum(segment.size_bytes for segment in self.values)

    def get(self, base_offset: int) -> LogSegment | None:
        """Return the segment that begins at exactly this offset."""
        return segment_at(self.values, base_offset)

    def floor(self, offset: int) -> LogSegment | None:
        """Return the last segment whose base offset is at or below ``offset``."""
        index = floor_index(self.values, offset)
        return self.values[index] if index >= 0 else None

    def lower(self, offset: int) -> LogSegment | None:
        """Return the last segment whose base offset is below ``offset``."""
        return self.floor(offset - 1)

    def higher(self, offset: int) -> LogSegment | None:
        """Return the first segment whose base offset is above ``offset``."""
        index = floor_index(self.values, offset) + 1
        return self.values[index] if index < len(self.values) else None

    def range(self, from_offset: int, to_offset: int) -> Sequence[LogSegment]:
        """Return the segments that ``[from_offset, to_offset)`` touches, from the one that holds ``from_offset`` on.

        Raises:
            ValueError: the range ends before it begins.
        """
        return segments_between(self.values, from_offset, to_offset)

    def add(self, segment: LogSegment) -> LogSegment | None:
        """Put a segment in its place; return the one that had the same base offset before."""
        index = bisect_left(self.values, segment.base_offset, key=_base_offset)
        replaced = self.get(segment.base_offset)
        self.values = (*self.values[:index], segment, *self.values[index + (replaced is not None) :])
        return replaced

    def remove(self, base_offset: int) -> LogSegment | None:
        """Take out the segment that begins there; return it."""
        removed = self.get(base_offset)
        if removed is not None:
            index = bisect_left(self.values, base_offset, key=_base_offset)
            self.values = self.values[:index] + self.values[index + 1 :]
        return removed

    def clear(self) -> None:
        """Take out all of them."""
        self.values = ()


@dataclass(frozen=True, slots=True)
class PublishedLog:
    """Segments and log end that readers in other threads see at one moment; the writer replaces it whole.

    Attributes:
        segments: ascending; their files may be renamed at any time, which moves ``names_version``.
        log_end: exclusive end of the bytes that are in the files.
        names_version: number of renames and cuts, counted at begin and end of each; odd during a change.
    """

    segments: tuple[LogSegment, ...]
    log_end: LogOffset
    names_version: int = 0

    def files(self, index: int) -> SegmentFiles:
        """Return the names that the files of a segment have now."""
        path = self.segments[index].path
        following = index + 1
        return SegmentFiles(
            directory=path.parent,
            base_offset=self.segments[index].base_offset,
            next_base_offset=self.segments[following].base_offset if following < len(self.segments) else None,
            deleted=path.suffix == ".deleted",
        )
