"""PartitionView: all that is known of one partition's remote segments, as one immutable value (remote-tiering 6).

What each state of a segment lets a reader see:

===================  ============  ============  ==============  ===============
..                   COPY_STARTED  COPY_FINISHED DELETE_STARTED  DELETE_FINISHED
===================  ============  ============  ==============  ===============
segment_for          no            yes           no              no
list, list_epoch     yes           yes           yes             no
highest_offset       no            yes           stays           stays
===================  ============  ============  ==============  ===============

An event gives a ``ViewChange``: the next view and the rows that differ. The view it was made from stays as it was, so
whoever reads sees all of an event or none of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self
from uuid import UUID

from tierd.errors import InvalidMetadataError, InvalidSegmentTransitionError, RemoteResourceNotFoundError
from tierd.metadata import epoch_state
from tierd.metadata.epoch_state import EpochChange, EpochRange, RemoteLogLeaderEpochState
from tierd.metadata.row import Claim, PartitionDelete, PartitionRow
from tierd.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)

_NO_STATE = RemoteLogLeaderEpochState()


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition's remote segments at one revision.

    Attributes:
        partition: whose segments they are.
        row: the partition row, None while nobody ever claimed the partition.
        segments: every segment that is not DELETE_SEGMENT_FINISHED, by id.
        epochs: how lookups go, by leader epoch.
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
        """How many batches the partition has seen, 0 before the first."""
        return self.row.revision if self.row else 0

    @property
    def claim(self) -> Claim | None:
        """Who may write, None while nobody ever claimed the partition."""
        return self.row.claim if self.row else None

    @property
    def log_start_offset(self) -> int | None:
        """First offset that may be read, inclusive; None while it was never set."""
        return self.row.log_start_offset if self.row else None

    @property
    def delete_state(self) -> RemotePartitionDeleteState | None:
        """How far the deletion of the partition has come; None while it is not being deleted."""
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
        """The finished segment that holds ``offset`` in ``epoch``; None in a hole or past the end.

        Args:
            epoch: the one that the lineage assigns to the offset; with another the answer is none.
            offset: of a record.
        """
        segment_id = self.epochs.get(epoch, _NO_STATE).floor(offset)
        if segment_id is None:
            return None
        metadata = self.segments[segment_id]
        return metadata if offset <= metadata.epoch_end(epoch) else None

    def next_segment_with_txn_index(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The first segment from ``offset`` on in ``epoch`` that may have aborted transactions; a hole ends it."""
        metadata = self.segment_for(epoch, offset)
        while metadata is not None and metadata.txn_index_empty:
            metadata = self.segment_for(epoch, metadata.end_offset + 1)
        return metadata

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """The largest offset ever finished in ``epoch``, inclusive, whatever was deleted since; None when none was."""
        return self.epochs.get(epoch, _NO_STATE).highest

    def segment(self, segment_id: UUID) -> RemoteLogSegmentMetadata | None:
        """The segment of that id, None when it is unknown or gone."""
        return self.segments.get(segment_id)

    def list(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Every segment that is not gone, in no order."""
        return tuple(self.segments.values())

    def list_epoch(self, epoch: int) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Every segment that mentions ``epoch``, ascending by start offset; of equal starts the readable one first."""
        return self.epochs.get(epoch, _NO_STATE).listed(self.segments.get)

    def size_of_epoch(self, epoch: int) -> int:
        """Bytes of everything that ``list_epoch`` shows, unfinished and shadowed segments too."""
        return sum(metadata.size_bytes for metadata in self.list_epoch(epoch))

    def with_added(self, metadata: RemoteLogSegmentMetadata) -> "ViewChange":
        """Begin a copy; repeating the very same request changes nothing.

        Raises:
            InvalidMetadataError: not COPY_SEGMENT_STARTED, of another partition, the id is taken, or the partition is
                being deleted: a deletion that began must come to its end.
            RemoteResourceNotFoundError: the partition was deleted.
        """
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise InvalidMetadataError(f"{metadata.segment} is added {metadata.state.name}, not COPY_SEGMENT_STARTED")
        self._require_mine(metadata.segment.topic_id_partition)
        self.require_not_deleted()
        segment_id = metadata.segment.id
        present = self.segments.get(segment_id) or self.tombstones.get(segment_id)
        if present == metadata:
            return ViewChange(self)
        if present is not None:
            raise InvalidMetadataError(
                f"{metadata.segment} exists already, as {present.state.name} with other content",
                remedy="begin every copy attempt with a fresh segment id",
            )
        if self.delete_state is not None:
            raise InvalidMetadataError(f"{self.partition} is {self.delete_state.name}: nothing may be added to it")
        changes = tuple(
            epoch_state.started(self.epochs.get(span.epoch, _NO_STATE), segment_id, span)
            for span in epoch_state.ranges_of(metadata)
        )
        return self._changed(metadata, changes)

    def with_adopted(self, metadata: RemoteLogSegmentMetadata) -> "ViewChange":
        """Begin and finish a copy in one step: its objects are there already. Repeating it changes nothing.

        In two steps a crash in between would leave a row that the sweep takes, objects and all, for a copy that nobody
        finishes.

        Raises:
            As ``with_added``.
        """
        finished = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        if self.segments.get(metadata.segment.id) == finished:
            return ViewChange(self)
        self.with_added(metadata)  # whatever speaks against that speaks against this
        changes = self._epoch_changes(metadata, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        return self._changed(finished, changes)

    def with_updated(self, update: RemoteLogSegmentMetadataUpdate) -> "ViewChange":
        """Take a step in a segment's life; a repeated step succeeds, and what was deleted may be deleted again.

        Raises:
            InvalidMetadataError: COPY_SEGMENT_STARTED, which only an add may set, or of another partition.
            RemoteResourceNotFoundError: nobody added the segment, or the partition was deleted.
            InvalidSegmentTransitionError: the lifecycle has no such step.
        """
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise InvalidMetadataError(f"{update.segment}: only adding a segment makes it COPY_SEGMENT_STARTED")
        self._require_mine(update.segment.topic_id_partition)
        self.require_not_deleted()
        present = self.segments.get(update.segment.id)
        if present is None:
            return self._repeated_on_tombstone(update)
        present.require_step(update.state)
        return self._changed(present.updated(update), self._epoch_changes(present, update.state))

    def with_undeleted(
        self, update: RemoteLogSegmentMetadataUpdate, *, log_start_offset: int | None = None
    ) -> "ViewChange":
        """Take a segment back whose deletion has begun, as a finish: the one step that Kafka lacks (DESIGN 4).

        Repeating it succeeds. Whoever asks has made sure that every object is there. ``log_start_offset``: where the
        log begins from then on, in the same step, if that is below the present start: what expired is readable again.

        Raises:
            InvalidMetadataError: the update is not to COPY_SEGMENT_FINISHED, is of another partition, or the partition
                is being deleted.
            RemoteResourceNotFoundError: nobody added the segment, or the partition was deleted.
            InvalidSegmentTransitionError: its deletion has not begun, or has ended.
        """
        if update.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            raise InvalidMetadataError(
                f"{update.segment}: undelete leads to COPY_SEGMENT_FINISHED, not {update.state.name}"
            )
        self._require_mine(update.segment.topic_id_partition)
        self.require_not_deleted()
        if self.delete_state is not None:
            raise InvalidMetadataError(f"{self.partition} is {self.delete_state.name}: none of it comes back")
        present = self.segments.get(update.segment.id)
        if present is None:
            return self._repeated_on_tombstone(update)
        present.require_undeletable()
        change = self._changed(present.updated(update), self._epoch_changes(present, update.state))
        return change.lowering_log_start(log_start_offset)

    def with_partition_delete(self, metadata: RemotePartitionDeleteMetadata) -> "ViewChange":
        """Take a step in the deletion of the whole partition; a repeated step changes nothing.

        Finished, the view is empty but for its row: what is still stored of it may be erased. That step is refused
        while a segment is left, whose objects nobody would ever remove.

        Raises:
            InvalidSegmentTransitionError: the lifecycle has no such step.
            InvalidMetadataError: of another partition, or the last step while segments are left.
        """
        self._require_mine(metadata.partition)
        metadata.require_follows(self.delete_state)
        if self.row is None or metadata.state is self.delete_state:
            return ViewChange(self)
        deletion = PartitionDelete(metadata.state, metadata.event_timestamp_ms, metadata.broker_id)
        row = replace(self.row, deletion=deletion)
        if not row.is_tombstone:
            return ViewChange(replace(self, row=row), row_changed=True, deletion=deletion)
        if self.segments:
            raise InvalidMetadataError(
                f"{self.partition}: {len(self.segments)} segments are left, so its deletion is not finished",
                remedy="delete every segment first",
            )
        empty = PartitionView(self.partition, row, strict_kafka_compat=self.strict_kafka_compat)
        return ViewChange(empty, row_changed=True, deletion=deletion)

    def with_log_start_offset(self, offset: int) -> "ViewChange":
        """Set the log start or move it forward; an offset that is not ahead of it changes nothing.

        Raises:
            RemoteResourceNotFoundError: the partition was deleted.
        """
        self.require_not_deleted()
        if self.row is None or (self.row.log_start_offset is not None and offset <= self.row.log_start_offset):
            return ViewChange(self)
        return ViewChange(replace(self, row=replace(self.row, log_start_offset=offset)), row_changed=True)

    def expired_tombstones(self, before_ms: int, *, limit: int) -> tuple[UUID, ...]:
        """At most ``limit`` tombstones whose event is older than ``before_ms``, oldest first."""
        expired: list[UUID] = []
        for segment_id, metadata in self.tombstones.items():
            if metadata.event_timestamp_ms >= before_ms or len(expired) == limit:
                break
            expired.append(segment_id)
        return tuple(expired)

    def without_tombstones(self, segment_ids: Iterable[UUID]) -> Self:
        """Forget those tombstones."""
        gone = frozenset(segment_ids)
        kept = {segment_id: metadata for segment_id, metadata in self.tombstones.items() if segment_id not in gone}
        unknown = {segment_id: fields for segment_id, fields in self.unknown.items() if segment_id not in gone}
        return replace(self, tombstones=kept, unknown=unknown)

    def _require_mine(self, partition: TopicIdPartition) -> None:
        if partition != self.partition:
            raise InvalidMetadataError(f"{partition} with id {partition.topic_id} is not {self.partition}")

    def _repeated_on_tombstone(self, update: RemoteLogSegmentMetadataUpdate) -> "ViewChange":
        if update.segment.id not in self.tombstones:
            raise RemoteResourceNotFoundError(f"{update.segment}: no such segment was added")
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            raise InvalidSegmentTransitionError(f"{update.segment} is deleted, cannot become {update.state.name}")
        return ViewChange(self)

    def _epoch_changes(
        self, metadata: RemoteLogSegmentMetadata, target: RemoteLogSegmentState
    ) -> tuple[EpochChange, ...]:
        return tuple(
            self._epoch_change(metadata, target, span, self.epochs.get(span.epoch, _NO_STATE))
            for span in epoch_state.ranges_of(metadata)
        )

    def _epoch_change(
        self,
        metadata: RemoteLogSegmentMetadata,
        target: RemoteLogSegmentState,
        span: EpochRange,
        state: RemoteLogLeaderEpochState,
    ) -> EpochChange:
        segment_id = metadata.segment.id
        match target:
            case RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                return epoch_state.finished(
                    state,
                    segment_id,
                    span,
                    range_of=lambda other: self._range_of(other, span.epoch),
                    strict_kafka_compat=self.strict_kafka_compat,
                )
            case RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                return epoch_state.delete_started(state, segment_id, span)
            case _:
                return epoch_state.delete_finished(state, segment_id, span)

    def _range_of(self, segment_id: UUID, epoch: int) -> EpochRange:
        metadata = self.segments[segment_id]
        first = next(entry.start_offset for entry in metadata.segment_leader_epochs if entry.epoch == epoch)
        return EpochRange(epoch, first, metadata.epoch_end(epoch))

    def _changed(self, metadata: RemoteLogSegmentMetadata, changes: tuple[EpochChange, ...]) -> "ViewChange":
        segment_id = metadata.segment.id
        changes = tuple(change for change in changes if not change.is_empty())
        if not changes and self.segments.get(segment_id) == metadata:
            return ViewChange(self)
        epochs = {**self.epochs, **{change.epoch: change.state for change in changes}}
        for change in changes:
            if change.state.is_blank():
                del epochs[change.epoch]
        segments = dict(self.segments)
        tombstones = self.tombstones
        if metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            segments.pop(segment_id, None)
            tombstones = {**tombstones, segment_id: metadata}
        else:
            segments[segment_id] = metadata
        view = replace(self, segments=segments, epochs=epochs, tombstones=tombstones)
        return ViewChange(view, segment=metadata, epochs=changes)


@dataclass(frozen=True, slots=True)
class ViewChange:
    """The next view, and what of it has to be stored.

    Attributes:
        view: as it will be once the change is durable; its row is not yet the one of that batch.
        segment: whose row is written.
        epochs: what differs in each epoch that the segment names.
        expired: tombstones whose rows go.
        row_changed: the partition row differs by more than its revision.
        deletion: how far the deletion of the partition has come, where that is what changed.
    """

    view: PartitionView
    segment: RemoteLogSegmentMetadata | None = None
    epochs: tuple[EpochChange, ...] = ()
    expired: tuple[UUID, ...] = ()
    row_changed: bool = False
    deletion: PartitionDelete | None = None

    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return self.segment is None and not self.epochs and not self.expired and not self.row_changed

    def lowering_log_start(self, offset: int | None) -> Self:
        """The same change, which also moves the log start back to ``offset``, if it is above that."""
        row = self.view.row
        if offset is None or row is None or row.log_start_offset is None or row.log_start_offset <= offset:
            return self
        return replace(self, view=replace(self.view, row=replace(row, log_start_offset=offset)), row_changed=True)

    def with_row(self, row: PartitionRow) -> Self:
        """The same change under the row of its batch."""
        return replace(self, view=replace(self.view, row=row))

    def expiring(self, before_ms: int, *, limit: int) -> Self:
        """The same change, which also drops at most ``limit`` tombstones older than ``before_ms``."""
        expired = self.view.expired_tombstones(before_ms, limit=limit)
        return replace(self, view=self.view.without_tombstones(expired), expired=expired) if expired else self
