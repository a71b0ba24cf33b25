"""Ranges of a segment that may hold wanted records. Pure; a range of unknown content is read."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tierd.arrow import Range
from tierd.log import OffsetIndex


class Bytes(NamedTuple):
    """Bytes ``[start, end)`` of a log."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """Chunk of the stored log, with the timestamps of the records that overlap it; None where they are unknown."""

    content: Bytes
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None

    def may_hold(self, timestamps_ms: Range) -> bool:
        """Return True if a record of the chunk may have a timestamp in the range."""
        is_old = self.max_timestamp_ms is not None and self.max_timestamp_ms < timestamps_ms.low
        is_young = self.min_timestamp_ms is not None and self.min_timestamp_ms > timestamps_ms.high
        return not (is_old or is_young)


def chunks_to_read(chunks: Sequence[ChunkTimes], timestamps_ms: Range, size_bytes: int) -> list[Bytes]:
    """Return the bytes of the chunks that may hold records of the wanted times, neighbours joined."""
    if timestamps_ms.is_all:
        return [Bytes(0, size_bytes)] if size_bytes else []
    return list(_joined(chunk.content for chunk in chunks if chunk.may_hold(timestamps_ms)))


def whole_batches(wanted: Sequence[Bytes], index: OffsetIndex, size_bytes: int) -> list[Bytes]:
    """Widen ``wanted`` so that each piece begins and ends at a batch that the index lists, or at an end of the log."""
    return list(_joined(Bytes(_floor(index, w.start), _ceiling(index, w.end, size_bytes)) for w in wanted))


def batches_of_offsets(index: OffsetIndex, start_offset: int, end_offset: int, size_bytes: int) -> Bytes:
    """Return the range of the batches of ``[start_offset, end_offset)``, by a sparse index."""
    start = index.lookup(start_offset).position
    # An entry stands for the batches from its position to its offset, and what follows them begins at the next entry.
    last = bisect_left(range(len(index)), end_offset - 1, key=lambda at: index[at].offset)
    return Bytes(start, index[last + 1].position if last + 1 < len(index) else size_bytes)


def clipped(wanted: Sequence[Bytes], limits: Bytes) -> list[Bytes]:
    """Return the parts of ``wanted`` within ``limits``."""
    found = (Bytes(max(w.start, limits.start), min(w.end, limits.end)) for w in wanted)
    return [each for each in found if each.start < each.end]


def _joined(pieces: "Iterator[Bytes] | Sequence[Bytes]") -> Iterator[Bytes]:
    """Yield ascending pieces; pieces that touch or overlap are joined."""
    begun: Bytes | None = None
    for piece in pieces:
        if begun is None:
            begun = piece
        elif piece.start <= begun.end:
            begun = Bytes(begun.start, max(begun.end, piece.end))
        else:
            yield begun
            begun = piece
    if begun is not None:
        yield begun


def _floor(index: OffsetIndex, position: int) -> int:
    at = bisect_right(range(len(index)), position, key=lambda at: index[at].position)
    return index[at - 1].position if at else 0


def _ceiling(index: OffsetIndex, position: int, size_bytes: int) -> int:
    at = bisect_left(range(len(index)), position, key=lambda at: index[at].position)
    return index[at].position if at < len(index) else size_bytes
