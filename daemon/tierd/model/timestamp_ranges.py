"""Timestamps of parts of a log, so that readers of a time range can skip the others."""

from typing import NamedTuple

from tierd.model.block_checksums import CHECKSUM_BLOCK_BYTES


class TimestampOffset(NamedTuple):
    """A timestamp and its offset: a record, a place in the log, or an entry of a time index (Kafka: TimestampOffset).

    Attributes:
        timestamp_ms: of the record; of an index entry, the largest timestamp up to ``offset``; -1 for a place.
        offset: of the record or the place; of an index entry, the last offset of a batch.
        leader_epoch: epoch that wrote the record; None when the epoch is not known, as in a time index.
    """

    timestamp_ms: int
    offset: int
    leader_epoch: int | None = None


class TimestampRange(NamedTuple):
    """The smallest and the largest timestamp of some records, both inclusive."""

    min_ms: int
    max_ms: int

    def union(self, other: "TimestampRange") -> "TimestampRange":
        """Return the smallest range that covers both."""
        return TimestampRange(min(self.min_ms, other.min_ms), max(self.max_ms, other.max_ms))


class BlockTimestamps:
    """Collector, batch by batch, of the times of the records that overlap each block of ``CHECKSUM_BLOCK_BYTES`` bytes.

    A batch counts whole in every block that it reaches into: positions inside a compressed batch are unknown.
    """

    def __init__(self) -> None:
        self._size_bytes = 0
        self._blocks: list[TimestampRange | None] = []
        self._unknown: set[int] = set()

    def add(self, size_bytes: int, timestamps: TimestampRange | None) -> None:
        """Add the next batch; if its timestamps are None, the times of every block that it overlaps are unknown."""
        for block in self._blocks_of(size_bytes):
            known = self._blocks[block]
            if timestamps is None:
                self._unknown.add(block)
            else:
                self._blocks[block] = timestamps if known is None else known.union(timestamps)

    def pass_over(self, size_bytes: int) -> None:
        """Add the next batch, one without records."""
        self._blocks_of(size_bytes)

    def ranges(self) -> tuple[TimestampRange | None, ...]:
        """Return one range for every block so far; None where the times are not known, or there is no record."""
        return tuple(None if n in self._unknown else each for n, each in enumerate(self._blocks))

    def _blocks_of(self, size_bytes: int) -> range:
        """Return the blocks that the next ``size_bytes`` bytes, at least 1, overlap."""
        first = self._size_bytes // CHECKSUM_BLOCK_BYTES
        self._size_bytes += size_bytes
        end = -(-self._size_bytes // CHECKSUM_BLOCK_BYTES)
        self._blocks += [None] * (end - len(self._blocks))
        return range(first, end)
