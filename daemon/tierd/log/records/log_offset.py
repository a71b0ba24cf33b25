"""LogOffset: an offset, and its place in the log (Kafka: LogOffsetMetadata)."""

from dataclasses import dataclass

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class LogOffset:
    """An offset; where they are known, with its segment and its byte position in the segment.

    Attributes:
        offset: of a record, or of a log's end.
        segment_base_offset: of the segment that holds the offset; -1 when only the offset is known.
        position: byte position in the file of the segment; -1 when only the offset is known.
    """

    offset: int
    segment_base_offset: int = UNKNOWN
    position: int = UNKNOWN

    @property
    def is_offset_only(self) -> bool:
        """Return True if the offset's segment and position are not known."""
        return self.segment_base_offset == UNKNOWN

    def is_on_older_segment_than(self, other: "LogOffset") -> bool:
        """Return True if this offset lies in an earlier segment than ``other``; False if either is unknown."""
        known = not (self.is_offset_only or other.is_offset_only)
        return known and self.segment_base_offset < other.segment_base_offset
