"""PartitionChangelog: one changelog as batches, wherever its segments lie; and the values that describe it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log import AbortedTransaction, RecordBatch
from tierd.model import Lineage, TopicPartition
from tierd.restore.changelog.changelog_errors import CorruptSourceError

IsCompacted = Callable[[str], bool]
"""Return True for a topic in which the cleaner leaves holes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogBounds:
    """Offsets of one changelog at one moment.

    Attributes:
        earliest_offset: log start, inclusive.
        end_offset: log end, exclusive.
        stable_offset: last stable offset, exclusive; at most ``end_offset``. It may lie below the log start: then a
            transaction is open that began there.
        topic_id: None where it is not known.
        lineage: leader epochs of the log.
    """

    earliest_offset: int
    end_offset: int
    stable_offset: int
    topic_id: UUID | None
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class ChangelogPiece:
    """Consecutive whole batches of a changelog.

    Attributes:
        batches: ascending, checksums checked; the first one may begin below the offset that was asked for.
        next_offset: the offset to read on from. Compaction may have left nothing between the last batch and it.
        size_bytes: bytes of the batches in the log.
        remote_bytes: those of ``size_bytes`` that came from the tier.
    """

    batches: Sequence[RecordBatch]
    next_offset: int
    size_bytes: int = 0
    remote_bytes: int = 0


class ObjectGoneError(SegmentChangedError):
    """Object of the tier that is gone, although the metadata has its segment.

    Attributes:
        segments: ids of all segments that the metadata had.
    """

    def __init__(self, cause: str, *, remedy: str, segments: frozenset[UUID]) -> None:
        super().__init__(cause, remedy=remedy)
        self.segments = segments


class PartitionChangelog(Protocol):
    """One changelog as it was at the last ``refresh``. One call at a time.

    Raises, from every call:
        SegmentChangedError: a part of the log was replaced or deleted; refresh, and call again.
        TierError: as the log or the store has it; ``PartitionedSource`` translates it.
    """

    async def refresh(self) -> ChangelogBounds:
        """Look again, and return the bounds as they are now."""

    async def read(self, offset: int, *, end_offset: int, max_bytes: int) -> ChangelogPiece:
        """Return batches that begin below ``end_offset``, from the one that holds or follows ``offset`` on.

        Args:
            offset: at or above the log start, below ``end_offset``.
            end_offset: exclusive, at most the log end.
            max_bytes: about the size of the batches.

        Raises:
            CorruptSourceError: the topic is not compacted and has a hole at ``offset``.
        """

    async def aborted(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return every aborted transaction that touches ``[start_offset, end_offset)``, perhaps twice."""

    async def close(self) -> None:
        """End what was fetched ahead. The changelog may be read again."""


def require_no_hole(partition: TopicPartition, offset: int, batches: Sequence[RecordBatch], *, end_offset: int) -> None:
    """Require that ``batches`` have every offset of ``[offset, end_offset)``, as in a topic that is not compacted.

    Raises:
        CorruptSourceError: offsets are missing.
    """
    for batch in batches:
        if batch.base_offset > offset:
            raise hole(partition, offset, batch.base_offset)
        offset = batch.last_offset + 1
    if offset < end_offset:
        raise hole(partition, offset, end_offset)


def hole(partition: TopicPartition, start_offset: int, end_offset: int) -> CorruptSourceError:
    """Return the error for the missing offsets ``[start_offset, end_offset)`` of a topic that is not compacted."""
    return CorruptSourceError(
        partition,
        f"offsets {start_offset} to {end_offset - 1} are missing, and the topic is not compacted",
        remedy=f"run tierd explain {partition} {start_offset}; a source that has these offsets restores the store",
    )


def damaged(partition: TopicPartition, error: CorruptRecordError) -> CorruptSourceError:
    """Return the error for a damaged batch; the text of ``error`` names segment and position."""
    return CorruptSourceError(
        partition, str(error), remedy=f"run tierd verify --deep {partition}, then restore from another copy"
    )
