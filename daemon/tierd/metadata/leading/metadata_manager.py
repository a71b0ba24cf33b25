"""RemoteLogMetadataManager: the leader's metadata, first durable, then visible (remote-tiering 5 to 7)."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from tierd.errors import InvalidMetadataError
from tierd.metadata.leading.led_partition import LedPartition
from tierd.metadata.leading.led_partitions import LedPartitions
from tierd.metadata.rows import Claim, fenced
from tierd.metadata.stored import forget_deleted_partitions
from tierd.metadata.views import PartitionView, ViewChange
from tierd.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    SoftDelete,
    TopicIdPartition,
)

_TOMBSTONES_DROPPED_PER_BATCH: Final = 64
_ROWS_ERASED_PER_BATCH: Final = 500  # every product takes so many in one batch, in a fraction of its deadline


class RemoteLogMetadataManager(LedPartitions):
    """Metadata of the partitions that this broker leads: live views, and each change written through to a store.

    Partitions that this broker follows are read from the store. The caller owns the store and closes it after the
    manager.
    """

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Record that a copy begins; returns when that is durable and visible. Repeating the same request succeeds.

        Raises:
            InvalidMetadataError: not COPY_SEGMENT_STARTED, or the id is taken; nothing was written.
            FencedError: the partition is not ours, or the copy was begun under another claim; nothing was written.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        if not isinstance(metadata, RemoteLogSegmentMetadata):
            raise TypeError(f"add takes RemoteLogSegmentMetadata, not {metadata!r}")
        await self._begin([metadata], lambda view: view.with_added(metadata))

    async def adopt(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Record a segment as finished whose objects are there and in no metadata yet, in one step.

        The caller has made sure that every object is there and sound. ``metadata`` is COPY_SEGMENT_STARTED, under the
        claim of this session. Repeating the same request succeeds.

        Raises:
            As ``add``.
        """
        await self._begin([metadata], lambda view: view.with_adopted(metadata))

    async def begin_outputs(self, outputs: Sequence[RemoteLogSegmentMetadata]) -> None:
        """Record the begin of outputs, segments that replace others, all of one partition, in one step; as ``add``.

        Outputs that are recorded already are left as they are, the others are added. An empty sequence is no error.

        Raises:
            InvalidMetadataError: as ``add``, or of several partitions; none was written.
            FencedError: as ``add``.
            BackendUnavailableError: none was written.
            OutcomeUnknownError: all or none may have been written; the same request may be repeated.
        """
        if len({output.segment.topic_id_partition for output in outputs}) > 1:
            raise InvalidMetadataError("outputs of several partitions cannot begin in one step")
        if outputs:
            await self._begin(outputs, lambda view: view.with_added(*outputs))

    async def _begin(
        self, segments: Sequence[RemoteLogSegmentMetadata], change_of: Callable[[PartitionView], ViewChange]
    ) -> None:
        led = self._leading(segments[0].segment.topic_id_partition)

        def begun(view: PartitionView) -> ViewChange:
            change = change_of(view)
            for metadata in change.segments:
                writer = Claim(metadata.leader_epoch, metadata.broker_id, metadata.session_id)
                if (writer.leader_epoch, writer.session_id) != (led.claim.leader_epoch, led.claim.session_id):
                    raise fenced(led.partition, writer, led.claim)
            return change

        await self._write(led, begun)

    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Take a step in a segment's life; returns when that is durable and visible. Repeating a step succeeds.

        Raises:
            InvalidMetadataError: COPY_SEGMENT_STARTED, which only ``add`` may set.
            RemoteResourceNotFoundError: the segment was never added.
            InvalidSegmentTransitionError: the lifecycle has no such step; nothing was written.
            FencedError: the partition is not ours; nothing was written.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        if not isinstance(update, RemoteLogSegmentMetadataUpdate):
            raise TypeError(f"update takes RemoteLogSegmentMetadataUpdate, not {update!r}")
        led = self._leading(update.segment.topic_id_partition)
        before_ms = self._clock.now_ms() - int(self._tombstone_retention_s * 1000)

        def updated(view: PartitionView) -> ViewChange:
            change = view.with_updated(update)
            return change if change.is_empty() else change.expiring(before_ms, limit=_TOMBSTONES_DROPPED_PER_BATCH)

        await self._write(led, updated)

    async def undelete(
        self,
        update: RemoteLogSegmentMetadataUpdate,
        *,
        log_start_offset: int | None = None,
        require: Callable[[PartitionView], None] = lambda _: None,
    ) -> None:
        """Take back a segment whose deletion has begun, to COPY_SEGMENT_FINISHED; returns when durable and visible.

        The caller has made sure that every object is there. Repeating it succeeds.

        Args:
            update: the step.
            log_start_offset: first offset of the log from then on, if that is below its present start.
            require: raises where the view at that moment forbids it; nothing is written then.

        Raises:
            As ``update``, and what ``require`` raises.
        """
        led = self._leading(update.segment.topic_id_partition)

        def undeleted(view: PartitionView) -> ViewChange:
            require(view)
            return view.with_undeleted(update, log_start_offset=log_start_offset)

        await self._write(led, undeleted)

    async def replace_segments(
        self,
        output: RemoteLogSegmentMetadata,
        inputs: Sequence[RemoteLogSegmentMetadata],
        *,
        soft_delete: SoftDelete,
        compacted_to: int | None,
        planned_log_start: int = 0,
    ) -> None:
        """Finish an output and begin to delete its inputs, in one step; returns when that is durable and visible.

        Readers see the inputs before and the output afterwards, never both or neither. Repeating the same request
        succeeds.

        Args:
            output: COPY_SEGMENT_FINISHED, as its row shall be: with its final size, largest timestamp and custom
                metadata. The output was begun after all inputs were finished, with the same offsets and
                epochs.
            inputs: their rows as they were when the output was begun: finished, found by readers, without a gap.
            soft_delete: ``SoftDelete.replaced``, with the end of the grace.
            compacted_to: up to where the partition is clean then, exclusive; None leaves that as it is.
            planned_log_start: log start when the inputs were chosen, where the output lacks what hid older records.

        Raises:
            RefusedError: an input is not what it was, no reader finds it any more, or the log start was moved back to
                below ``planned_log_start``; nothing was written.
            InvalidMetadataError: the request contradicts itself, or what the output was begun as; nothing was written.
            RemoteResourceNotFoundError: the output was never begun.
            InvalidSegmentTransitionError: the output goes, or was finished otherwise; nothing was written.
            FencedError: the partition is not ours; nothing was written.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: all of it or nothing may have been written; the same request may be repeated.
        """
        led = self._leading(output.segment.topic_id_partition)
        await self._write(
            led,
            lambda view: view.with_replaced(
                output,
                inputs,
                soft_delete=soft_delete,
                compacted_to=compacted_to,
                planned_log_start=planned_log_start,
            ),
        )

    async def advance_compacted_to(self, partition: TopicIdPartition, offset: int) -> None:
        """Note that the partition is clean up to ``offset``, exclusive; one that is not ahead changes nothing.

        Raises:
            FencedError: the partition is not ours; nothing was written.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        await self._write(self._leading(partition), lambda view: view.with_compacted_to(offset))

    async def abandon_epochs(
        self, partition: TopicIdPartition, epochs: Collection[int], *, returned: Collection[int] = ()
    ) -> None:
        """Note that leader epochs of the tier are of a branch that the log has abandoned.

        A lineage that is made of the tier has no such epoch any more: its offsets may be those of another epoch. The
        segments stay.

        Args:
            partition: the partition.
            epochs: the epochs.
            returned: epochs that were noted so before, and that the log has again.

        Raises:
            FencedError: the partition is not ours; nothing was written.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        await self._write(self._leading(partition), lambda view: view.with_abandoned_epochs(epochs, returned=returned))

    async def put_partition_delete(self, metadata: RemotePartitionDeleteMetadata) -> None:
        """Take a step in the deletion of a partition that this broker leads; returns when that is durable and visible.

        Segments stay listed until the last step, DELETE_PARTITION_FINISHED, which is refused while one is left. The
        last step erases the rows of the partition, in batches of bounded size, and leaves the partition row as a
        tombstone. A last step that failed or was cancelled may have erased a part: put it again. Repeating a step
        succeeds.

        Raises:
            InvalidSegmentTransitionError: the lifecycle has no such step; nothing was written.
            InvalidMetadataError: the last step while segments are left; nothing was written.
            FencedError: the partition is not ours; nothing was written.
            BackendUnavailableError: this step was not written, or rows are left to be erased.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        led = self._leading(metadata.partition)
        await self._write(led, lambda view: view.with_partition_delete(metadata))
        if metadata.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            await self._erase(led)

    async def forget_deleted_partitions(self) -> int:
        """Remove the tombstones of partitions that were deleted longer ago than the retention; return how many.

        At most 256 a call; the partitions must not be announced any more.

        Raises:
            BackendUnavailableError: the store did not answer; some may be gone.
            OutcomeUnknownError: the same; call again.
            MetadataDecodeError: a row that cannot be understood.
        """
        before_ms = self._clock.now_ms() - int(self._tombstone_retention_s * 1000)
        return await forget_deleted_partitions(self._store, self.keys, before_ms=before_ms)

    async def advance_log_start_offset(self, partition: TopicIdPartition, offset: int) -> None:
        """Set the first readable offset or move it forward, durably; one that is not ahead changes nothing.

        Raises:
            FencedError: the partition is not ours; nothing was written.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        await self._write(self._leading(partition), lambda view: view.with_log_start_offset(offset))

    async def lower_log_start_offset(self, partition: TopicIdPartition, offset: int) -> None:
        """Move the first readable offset back, durably: the log itself begins and ends below it by now.

        Raises:
            FencedError: the partition is not ours; nothing was written.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        await self._write(self._leading(partition), lambda view: ViewChange(view).lowering_log_start(offset))

    async def note_recorded_log_start(self, partition: TopicIdPartition, offset: int) -> None:
        """Note durably that the bucket's record has the log start ``offset``, or ``RECORD_IN_DOUBT``.

        The row is written in any case, so that the call also proves the leadership.

        Raises:
            FencedError: the partition is not ours; nothing was written.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        await self._write(self._leading(partition), lambda view: ViewChange(view).recording_log_start(offset))

    async def prove_leadership(self, partition: TopicIdPartition) -> None:
        """Write the partition's row anew, which only its owner can: before an action that no store would fence.

        Raises:
            FencedError: the partition is not ours.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        await self._write(self._leading(partition), lambda view: ViewChange(view, row_changed=True))

    async def _erase(self, led: LedPartition) -> None:
        """Remove all rows but the last one of a deleted partition; a cancellation takes effect between two batches."""
        if await self._store.get(self.keys.deleted(led.partition)) is not None:
            return
        pairs = await self._store.scan(self.keys.partition_prefix(led.partition))
        rows = [key for key, _ in pairs if key != self.keys.row(led.partition)]

        async def erase(batch: Sequence[str]) -> None:
            await self._partitions.make_ready(led)
            await self._partitions.erase(led, batch)

        async def bury() -> None:
            await self._partitions.make_ready(led)
            await self._partitions.bury(led)

        for start in range(0, len(rows), _ROWS_ERASED_PER_BATCH):
            await self._exclusively(led, partial(erase, rows[start : start + _ROWS_ERASED_PER_BATCH]))
        await self._exclusively(led, bury)
