"""PartitionView: the remote segments of one partition, as one immutable value (remote-tiering 6).

An event gives a ``ViewChange``: the next view and the rows that differ. The earlier view stays as it was, so a
reader sees all of an event or none of it. The lookups of readers are in ``lookups``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self
from uuid import UUID

from tierd.errors import InvalidMetadataError, InvalidSegmentTransitionError, RemoteResourceNotFoundError
from tierd.metadata.rows import PartitionDelete, PartitionRow
from tierd.metadata.views import epoch_changes, replacement
from tierd.metadata.views.epoch_state import EpochChange
from tierd.metadata.views.partition_lookups import PartitionLookups
from tierd.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    SoftDelete,
    TopicIdPartition,
)

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class PartitionView(PartitionLookups):
    """One partition's remote segments at one revision, and the changes of them by each event."""

    def with_added(self, *segments: RemoteLogSegmentMetadata) -> "ViewChange":
        """Begin copies, all in one step; repeating the very same request changes nothing.

        Raises:
            InvalidMetadataError: one is not COPY_SEGMENT_STARTED, of another partition, its id is taken, or the
                partition is being deleted: a deletion that began must come to its end.
            RemoteResourceNotFoundError: the partition was deleted.
        """
        new = [metadata for metadata in dict.fromkeys(segments) if not self._is_added(metadata)]
        if len({metadata.segment.id for metadata in new}) != len(new):
            raise InvalidMetadataError(f"{self.partition}: two segments of one id are added at once")
        if new and self.delete_state is not None:
            raise InvalidMetadataError(f"{self.partition} is {self.delete_state.name}: nothing may be added to it")
        return self._changed(new, epoch_changes.begun(self, new))

    def with_adopted(self, metadata: RemoteLogSegmentMetadata) -> "ViewChange":
        """Begin and finish a copy in one step: its objects are there already. Repeating it changes nothing.

        In two steps a crash in between would leave a row that the sweep takes, objects and all, for an abandoned
        copy.

        Raises:
            As ``with_added``.
        """
        finished = replace(metadata, state=_FINISHED)
        if self.segments.get(metadata.segment.id) == finished:
            return ViewChange(self)
        self.with_added(metadata)  # raises all that forbids an add
        return self._changed([finished], epoch_changes.stepped(self, metadata, _FINISHED))

    def with_updated(self, update: RemoteLogSegmentMetadataUpdate) -> "ViewChange":
        """Take a step in a segment's life; a repeated step succeeds, and what was deleted may be deleted again.

        Raises:
            InvalidMetadataError: COPY_SEGMENT_STARTED, which only an add may set, or of another partition.
            RemoteResourceNotFoundError: the segment was never added, or the partition was deleted.
            InvalidSegmentTransitionError: the lifecycle has no such step.
        """
        if update.state is _STARTED:
            raise InvalidMetadataError(f"{update.segment}: only adding a segment makes it COPY_SEGMENT_STARTED")
        self._require_mine(update.segment.topic_id_partition)
        self.require_not_deleted()
        present = self.segments.get(update.segment.id)
        if present is None:
            return self._repeated_on_tombstone(update)
        present.require_step(update.state)
        return self._changed([present.updated(update)], epoch_changes.stepped(self, present, update.state))

    def with_undeleted(
        self, update: RemoteLogSegmentMetadataUpdate, *, log_start_offset: int | None = None
    ) -> "ViewChange":
        """Take a segment back whose deletion has begun, as a finish: the one step that Kafka lacks (DESIGN 4).

        Repeating it succeeds. The caller has made sure that every object is there. ``log_start_offset``: where the
        log begins from then on, in the same step, if that is below the present start: what expired is readable again.

        Raises:
            InvalidMetadataError: the update is not to COPY_SEGMENT_FINISHED, is of another partition, or the partition
                is being deleted.
            RemoteResourceNotFoundError: the segment was never added, or the partition was deleted.
            InvalidSegmentTransitionError: its deletion has not begun, or has ended.
        """
        if update.state is not _FINISHED:
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
        change = self._changed([present.updated(update)], epoch_changes.stepped(self, present, update.state))
        return change.lowering_log_start(log_start_offset)

    def with_replaced(
        self,
        output: RemoteLogSegmentMetadata,
        inputs: Sequence[RemoteLogSegmentMetadata],
        *,
        soft_delete: SoftDelete,
        compacted_to: int | None,
        planned_log_start: int = 0,
    ) -> "ViewChange":
        """Finish ``output`` and begin to delete ``inputs``, whose place it takes; repeating it changes nothing.

        Every lookup that found an input finds the output afterwards. The highest offsets stay what they are.

        Args:
            output: COPY_SEGMENT_FINISHED, as its row shall be; its event is that of all rows.
            inputs: as their rows were when the output was begun.
            soft_delete: ``SoftDelete.replaced``, with the end of the grace.
            compacted_to: up to where the partition is clean then, exclusive; None leaves that as it is.
            planned_log_start: log start when the inputs were chosen, where the output lacks what hid older records.

        Raises:
            InvalidMetadataError: the request contradicts itself, or what the output was begun as.
            RemoteResourceNotFoundError: the output was never begun, or the partition was deleted.
            InvalidSegmentTransitionError: the output was finished otherwise, or goes.
            RefusedError: an input is not what it was, no reader finds it any more, or the log start was moved back.
        """
        self._require_mine(output.segment.topic_id_partition)
        self.require_not_deleted()
        if replacement.is_replaced_already(self, output, inputs):
            return self.with_compacted_to(compacted_to)
        replacement.require_log_start(self, output, planned_log_start)
        replacement.require_replaceable(self, output, inputs, soft_delete)
        rows = replacement.rows_after(output, inputs, soft_delete)
        changes = epoch_changes.replaced(self, output, inputs)
        replacement.require_lookups_kept(self, output, inputs, changes)
        return self._changed(rows, changes, compacted_to=compacted_to)

    def with_compacted_to(self, offset: int | None) -> "ViewChange":
        """Note that the partition is clean up to ``offset``, exclusive, if that is further than before.

        Raises:
            RemoteResourceNotFoundError: the partition was deleted.
        """
        self.require_not_deleted()
        return self._changed((), (), compacted_to=offset)

    def with_abandoned_epochs(self, epochs: Iterable[int], *, returned: Iterable[int] = ()) -> "ViewChange":
        """Let no lineage of the tier have these epochs, and have ``returned`` again; repeating it changes nothing.

        Raises:
            RemoteResourceNotFoundError: the partition was deleted.
        """
        self.require_not_deleted()
        known = {epoch for epoch in (*self.abandoned_epochs, *epochs) if epoch in self.epochs}
        abandoned = tuple(sorted(known.difference(returned)))
        if self.row is None or abandoned == self.abandoned_epochs:
            return ViewChange(self)
        return ViewChange(replace(self, row=replace(self.row, abandoned_epochs=abandoned)), row_changed=True)

    def with_partition_delete(self, metadata: RemotePartitionDeleteMetadata) -> "ViewChange":
        """Take a step in the deletion of the whole partition; a repeated step changes nothing.

        After the last step the view is empty but for its row, and the other rows may be erased. That last step is
        refused while a segment is left, whose objects would never be removed.

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
        """Return at most ``limit`` tombstones whose event is older than ``before_ms``, oldest first."""
        expired: list[UUID] = []
        for segment_id, metadata in self.tombstones.items():
            if metadata.event_timestamp_ms >= before_ms or len(expired) == limit:
                break
            expired.append(segment_id)
        return tuple(expired)

    def without_tombstones(self, segment_ids: Iterable[UUID]) -> Self:
        """Return the view without these tombstones."""
        gone = frozenset(segment_ids)
        kept = {segment_id: metadata for segment_id, metadata in self.tombstones.items() if segment_id not in gone}
        unknown = {segment_id: fields for segment_id, fields in self.unknown.items() if segment_id not in gone}
        return replace(self, tombstones=kept, unknown=unknown)

    def _require_mine(self, partition: TopicIdPartition) -> None:
        if partition != self.partition:
            raise InvalidMetadataError(f"{partition} with id {partition.topic_id} is not {self.partition}")

    def _is_added(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if the very same metadata was added already, False for a new id.

        Raises:
            As ``with_added``.
        """
        if metadata.state is not _STARTED:
            raise InvalidMetadataError(f"{metadata.segment} is added {metadata.state.name}, not COPY_SEGMENT_STARTED")
        self._require_mine(metadata.segment.topic_id_partition)
        self.require_not_deleted()
        segment_id = metadata.segment.id
        present = self.segments.get(segment_id) or self.tombstones.get(segment_id)
        if present is not None and present != metadata:
            raise InvalidMetadataError(
                f"{metadata.segment} exists already, as {present.state.name} with other content",
                remedy="begin every copy attempt with a fresh segment id",
            )
        return present is not None

    def _repeated_on_tombstone(self, update: RemoteLogSegmentMetadataUpdate) -> "ViewChange":
        if update.segment.id not in self.tombstones:
            raise RemoteResourceNotFoundError(f"{update.segment}: no such segment was added")
        if update.state is _FINISHED:
            raise InvalidSegmentTransitionError(f"{update.segment} is deleted, cannot become {update.state.name}")
        return ViewChange(self)

    def _changed(
        self,
        rows: Sequence[RemoteLogSegmentMetadata],
        changes: tuple[EpochChange, ...],
        *,
        compacted_to: int | None = None,
    ) -> "ViewChange":
        changes = tuple(change for change in changes if not change.is_empty())
        row = None if self.row is None else self.row.compacted(compacted_to)
        if row == self.row and not changes and all(self.segments.get(each.segment.id) == each for each in rows):
            return ViewChange(self)
        segments, tombstones = dict(self.segments), self.tombstones
        for metadata in rows:
            if metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
                segments.pop(metadata.segment.id, None)
                tombstones = {**tombstones, metadata.segment.id: metadata}
            else:
                segments[metadata.segment.id] = metadata
        epochs = epoch_changes.applied(self, changes)
        view = replace(self, row=row, segments=segments, epochs=epochs, tombstones=tombstones)
        return ViewChange(view, segments=tuple(rows), epochs=changes, row_changed=row != self.row)


@dataclass(frozen=True, slots=True)
class ViewChange:
    """The next view, and the rows of it that must be stored.

    Attributes:
        view: as it will be once the change is durable; its row is not yet the one of that batch.
        segments: segments to be written.
        epochs: the differences of each epoch that those segments name.
        expired: tombstones whose rows go.
        row_changed: the partition row differs by more than its revision.
        deletion: new state of the partition's deletion; None where that did not change.
    """

    view: PartitionView
    segments: tuple[RemoteLogSegmentMetadata, ...] = ()
    epochs: tuple[EpochChange, ...] = ()
    expired: tuple[UUID, ...] = ()
    row_changed: bool = False
    deletion: PartitionDelete | None = None

    def is_empty(self) -> bool:
        """Return True if there is nothing to store."""
        return not self.segments and not self.epochs and not self.expired and not self.row_changed

    def lowering_log_start(self, offset: int | None) -> Self:
        """Return the same change, which also moves the log start back to ``offset``, if the log start is above that."""
        row = self.view.row
        if offset is None or row is None or row.log_start_offset is None or row.log_start_offset <= offset:
            return self
        return replace(self, view=replace(self.view, row=replace(row, log_start_offset=offset)), row_changed=True)

    def recording_log_start(self, offset: int) -> Self:
        """Return the same change, which also notes that the bucket's record has the log start ``offset``."""
        row = self.view.row
        if row is None:
            return self
        return replace(self, view=replace(self.view, row=replace(row, recorded_log_start=offset)), row_changed=True)

    def with_row(self, row: PartitionRow) -> Self:
        """Return the same change under the row of its batch."""
        return replace(self, view=replace(self.view, row=row))

    def expiring(self, before_ms: int, *, limit: int) -> Self:
        """Return the same change, which also drops at most ``limit`` tombstones older than ``before_ms``."""
        expired = self.view.expired_tombstones(before_ms, limit=limit)
        return replace(self, view=self.view.without_tombstones(expired), expired=expired) if expired else self
