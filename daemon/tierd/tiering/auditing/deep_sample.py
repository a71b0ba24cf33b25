"""DeepChoice: which segments a deep check of the tier downloads. DeepSample: all of them, or a share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition


class DeepChoice(Protocol):
    """Choice of the segments whose bytes a check of the tier downloads."""

    @property
    def downloads(self) -> bool:
        """Return True if any segment may be taken."""

    def open(self, partition: TopicIdPartition, rows: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Look at the rows of a partition, before its first segment is checked."""

    def takes(self, row: RemoteLogSegmentMetadata | None) -> bool:
        """Return True for a segment whose bytes are to be checked; every segment is asked about once."""

    async def passed(self, rows: Sequence[RemoteLogSegmentMetadata]) -> None:
        """Take note of segments that were taken and have no fault."""


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Finished segments that a check has met, those that it took, and their bytes in the log."""

    segments: int = 0
    size_bytes: int = 0
    taken_segments: int = 0
    taken_bytes: int = 0


class DeepSample:
    """Choice of finished segments, a share of each partition: the same for the same seed, in any order of partitions.

    Of a partition, the number of chosen segments is ``share`` times its segments, rounded down or up by chance, so that
    many small partitions together give ``share`` too.
    """

    def __init__(self, share: float, *, seed: int = 0) -> None:
        """Choose nothing yet.

        Args:
            share: from 0, which takes none, to 1, which takes all.
            seed: another one takes other segments.
        """
        self.share = share
        self.seed = seed
        self._chosen: set[UUID] = set()
        self._statistics = SampleStatistics()

    @property
    def downloads(self) -> bool:
        """Return True unless the share is 0."""
        return self.share > 0

    def open(self, partition: TopicIdPartition, rows: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Choose among the rows of a partition, before its first segment is checked."""
        finished = [row for row in rows if row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
        wanted = self.share * len(finished)
        place = f"{partition.topic}-{partition.partition}".encode() + partition.topic_id.bytes
        number = int(wanted) + (self._chance(place) < wanted - int(wanted))
        finished.sort(key=lambda row: self._chance(row.segment.id.bytes))
        self._chosen.update(row.segment.id for row in finished[:number])

    def takes(self, row: RemoteLogSegmentMetadata | None) -> bool:
        """Return True for a segment whose bytes are to be checked; every segment is asked about once."""
        if row is None or row.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            return False
        is_taken = row.segment.id in self._chosen
        self._chosen.discard(row.segment.id)
        before = self._statistics
        self._statistics = SampleStatistics(
            segments=before.segments + 1,
            size_bytes=before.size_bytes + row.size_bytes,
            taken_segments=before.taken_segments + is_taken,
            taken_bytes=before.taken_bytes + row.size_bytes * is_taken,
        )
        return is_taken

    async def passed(self, rows: Sequence[RemoteLogSegmentMetadata]) -> None:
        """Keep nothing: another check with the same seed takes the same segments again."""

    def statistics(self) -> SampleStatistics:
        """Return what was taken so far, and of how much."""
        return self._statistics

    def _chance(self, name: bytes) -> float:
        """Return a number from 0 to 1 that depends on the seed and ``name`` alone."""
        digest = blake2b(name, digest_size=8, key=self.seed.to_bytes(8, "big")).digest()
        return int.from_bytes(digest, "big") / (1 << 64)
