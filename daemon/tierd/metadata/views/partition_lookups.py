"""PartitionLookups: the lookups of readers in one partition's remote segments, an immutable value (remote-tiering 6).

Segments that a reader sees, by state:

===================  ============  ============  ==============  ===============
..                   COPY_STARTED  COPY_FINISHED DELETE_STARTED  DELETE_FINISHED
===================  ============  ============  ==============  ===============
segment_for          no            yes           no              no
list, list_epoch     yes           yes           yes             no
highest_offset       no            yes           stays           stays
===================  ============  ============  ==============  ===============
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tierd.errors import RemoteResourceNotFoundError
from tierd.metadata.rows import EPOCHS_KEPT, Claim, CopiedEpoch, NewestEpochs, PartitionRow
from tierd.metadata.views.epoch_state import EpochRange, RemoteLogLeaderEpochState
from tierd.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
)

NO_STATE = RemoteLogLeaderEpochState()
"""State of an epoch that no segment mentions."""


@dataclass(frozen=True, slots=True)
class PartitionLookups:
    """One partition's remote segments at one revision, as readers ask for them.

    Attributes:
        partition: owner of the segments.
        row: the partition row, None while the partition was never claimed.
        segments: every segment that is not DELETE_SEGMENT_FINISHED, by id.
        epochs: the state that lookups use, by leader epoch.
        tombstones: segments whose objects are gone, oldest first; no list or count shows them.
        unknown: fields of a later tierd, by segment id.
        strict_kafka_compat: keep the holes that Kafka's algorithm leaves.
    """

    partition: TopicIdPartition
    row: PartitionRow | None = None
    segments: Mapping[UUID, RemoteLogSegmentMetadata] = field(default_factory=dict)
    epochs: Mapping[int, RemoteLogLeaderEpochState] = field(default_factory=dict)
    tombstones: Mapping[UUID, RemoteLogSegmentMetadata] = field(default_factory=dict)
    unknown: Mapping[UUID, Mapping[str, object]] = field(default_factory=dict)
    strict_kafka_compat: bool = False

    @property
    def revision(self) -> int:
        """Return the revision of the partition row, which grows with every batch; 0 without a row."""
        return self.row.revision if self.row else 0

    @property
    def claim(self) -> Claim | None:
        """Return the claim that may write, None while the partition was never claimed."""
        return self.row.claim if self.row else None

    @property
    def is_complete(self) -> bool:
        """Return True: a view has every epoch; ``CopiedEpochs`` of a row may lack older ones."""
        return True

    @property
    def log_start_offset(self) -> int | None:
        """Return the first offset that may be read, inclusive; None while it was never set."""
        return self.row.log_start_offset if self.row else None

    @property
    def compacted_to(self) -> int | None:
        """Return the exclusive end of the part that compaction has cleaned; None while there is none."""
        return self.row.compacted_to if self.row else None

    @property
    def delete_state(self) -> RemotePartitionDeleteState | None:
        """Return the state of the partition's deletion; None while it is not being deleted."""
        return self.row.deletion.state if self.row and self.row.deletion else None

    def require_not_deleted(self) -> None:
        """Raise when the partition was deleted.

        Raises:
            RemoteResourceNotFoundError: it was.
        """
        if self.row is not None and self.row.is_tombstone:
            raise RemoteResourceNotFoundError(
                f"{self.partition}: its remote data was deleted", remedy="nothing to do if the topic was deleted"
            )

    def segment_for(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the finished segment that holds ``offset`` in ``epoch``; None in a hole or past the end.

        Args:
            epoch: the one that the lineage assigns to the offset; with another the answer is none.
            offset: of a record.
        """
        segment_id = self.epochs.get(epoch, NO_STATE).floor(offset)
        if segment_id is None:
            return None
        metadata = self.segments[segment_id]
        return metadata if offset <= metadata.epoch_end(epoch) else None

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the largest offset ever finished in ``epoch``, inclusive, deleted ones too; None when none was."""
        return self.epochs.get(epoch, NO_STATE).highest

    def copied_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the last offset of ``epoch`` that counts as copied, inclusive; None when none does."""
        return self._copied_epoch(epoch, self.epochs.get(epoch, NO_STATE)).copied_offset(
            log_start_offset=self.log_start_offset, strict_kafka_compat=self.strict_kafka_compat
        )

    def first_offsets(self) -> Mapping[int, int]:
        """Return the first offset of each epoch of the log that a lookup can find a segment of, in no order."""
        found = ((epoch, state.first_offsets) for epoch, state in self.epochs.items())
        return {epoch: offsets[0] for epoch, offsets in found if offsets and epoch not in self.abandoned_epochs}

    @property
    def abandoned_epochs(self) -> tuple[int, ...]:
        """Return the epochs that are known to be of a branch which the log has abandoned, ascending."""
        return self.row.abandoned_epochs if self.row else ()

    def newest_epochs(self, revision: int) -> NewestEpochs:
        """Return how far the newest epochs are in the tier, for a row of ``revision``.

        An epoch without any finished segment, past or present, is left out.
        """
        finished = [epoch for epoch, state in self.epochs.items() if state.ids or state.highest is not None]
        newest = sorted(heapq.nlargest(EPOCHS_KEPT, finished))
        copied = tuple(self._copied_epoch(epoch, self.epochs[epoch]) for epoch in newest)
        return NewestEpochs(revision, copied, is_complete=len(newest) == len(finished))

    def segment(self, segment_id: UUID) -> RemoteLogSegmentMetadata | None:
        """Return the segment of that id, None when it is unknown or gone."""
        return self.segments.get(segment_id)

    def list(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return every segment that is not gone, in no order."""
        return tuple(self.segments.values())

    def list_epoch(self, epoch: int) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return every segment that mentions ``epoch``, by start offset; of equal starts the readable one first."""
        return self.epochs.get(epoch, NO_STATE).listed(self.segments.get)

    def size_of_epoch(self, epoch: int) -> int:
        """Return the log bytes of all that ``list_epoch`` returns, unfinished and shadowed segments too."""
        return sum(metadata.size_bytes for metadata in self.list_epoch(epoch))

    def is_readable(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if a lookup finds the segment."""
        return any(
            self.epochs.get(epoch, NO_STATE).referenced_at(first) == metadata.segment.id
            for epoch, first in metadata.segment_leader_epochs
        )

    def _copied_epoch(self, epoch: int, state: RemoteLogLeaderEpochState) -> CopiedEpoch:
        if not state.ids:
            return CopiedEpoch(epoch, None, None, state.highest)
        first = None if epoch in self.abandoned_epochs else state.first_offsets[0]
        return CopiedEpoch(epoch, first, self.range_in(epoch, state.ids[-1]).last, state.highest)

    def range_in(self, epoch: int, segment_id: UUID) -> EpochRange:
        """Return the offsets of ``epoch`` in a segment that is not gone and mentions the epoch."""
        metadata = self.segments[segment_id]
        first = next(entry.start_offset for entry in metadata.segment_leader_epochs if entry.epoch == epoch)
        return EpochRange(epoch, first, metadata.epoch_end(epoch))


def copied_last_ms(view: PartitionLookups) -> tuple[bool, int]:
    """Return a key that orders the incarnations of a partition: the one that readers mean has the greatest.

    Copies count, deletions do not: a deleted incarnation is still being deleted after the next one began to be copied.
    An incarnation of which nothing is readable comes before every other.
    """
    rows = view.list()
    readable = [m.event_timestamp_ms for m in rows if m.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    if readable:
        return True, max(readable)
    return False, max((m.event_timestamp_ms for m in rows), default=-1)
