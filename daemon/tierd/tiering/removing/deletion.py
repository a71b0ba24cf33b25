"""The delete cycle of one segment, step by step; interrupted anywhere, the row says what is left to do.

::

    never readable:  row DELETE_STARTED ─► ledger, if it has objects ─► objects go ─► row DELETE_FINISHED
    readable:        ledger ─► row DELETE_STARTED, soft ─► tombstone        begin
                               …the grace…                                  until here it can be taken back
                     ledger ─► objects go, the tombstone last ─► row DELETE_FINISHED      finish
    replaced:        row DELETE_STARTED with that of the output ─► ledger ─► tombstone    mark_left
                               …the grace, for readers; it is not undeleted…  ─► finish

The row comes before the tombstone, for only the row is fenced: a leader that lost the partition while it slept must not
tell a rebuild that a segment is gone which the new leader serves. A crash between the two leaves a bucket from which
the segment would be rebuilt as readable: it would expire once more, and nothing is lost.

An attempt to copy that put no object has no line in the ledger, and a deletion that is tried again and again has its
lines once in each process: while a store is away, neither drives older lines out.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Protocol
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import (
    RemoteIntegrityError,
    RemoteObjectRetainedError,
    RemoteUnauthenticatedError,
    StateDirError,
    TierError,
)
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    TopicIdPartition,
)
from tierd.remote import Tombstone
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.last_copy import is_last_copy
from tierd.tiering.removing.ledger import DeleteReason, Ledger, LedgerEntry, LedgerStep, NoLedger

log = structlog.get_logger()

RETAINED_RETRY_S: Final = 6 * 3600.0  # a retention period ends in days, not in minutes
_NOTED_SEGMENTS: Final = 10_000


class DeletableStorage(Protocol):
    """Part of a remote storage that deletion uses. Every call may be repeated and raises ``RemoteStorageError``."""

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove every object of the segment, the tombstone last."""

    async def write_tombstone(self, metadata: RemoteLogSegmentMetadata, tombstone: Tombstone) -> None:
        """Create the tombstone; one that is there already is success."""

    async def read_tombstone(self, metadata: RemoteLogSegmentMetadata) -> Tombstone | None:
        """Return the tombstone, None when there is none."""

    async def remove_tombstone(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove the tombstone; none is success."""

    async def any_object_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if log, indexes, manifest or tombstone is there."""

    async def objects_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if log, indexes and manifest are all there."""


class SegmentDeletion:
    """Deletion of remote segments, one at a time of each. Shared by all tasks of this process that delete."""

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadataManager,
        remote: DeletableStorage,
        recorder: TieringRecorder,
        clock: Clock,
        broker_id: int,
        ledger: Ledger | None = None,
    ) -> None:
        self._metadata = metadata
        self._remote = remote
        self._recorder = recorder
        self._clock = clock
        self._broker_id = broker_id
        self._ledger: Ledger = ledger or NoLedger()
        self._busy: set[UUID] = set()
        self._noted: dict[UUID, frozenset[LedgerStep]] = {}  # of deletions that have not ended
        self.steps = 0
        """Number of durable steps of all callers so far: a sign of life for callers that wait."""
        self._retained: dict[TopicIdPartition, dict[UUID, float]] = {}  # until when a refused deletion waits

    @contextlib.contextmanager
    def exclusively(self, metadata: RemoteLogSegmentMetadata) -> Iterator[bool]:
        """Yield True while the caller alone deletes or undeletes the segment; False when another caller does."""
        segment_id = metadata.segment.id
        if segment_id in self._busy:
            yield False
            return
        self._busy.add(segment_id)
        try:
            yield True
        finally:
            self._busy.discard(segment_id)

    def retained_for_s(self, segment: RemoteLogSegmentId) -> float:
        """Return the seconds until a deletion that the store refused is worth another try; 0 when it may be tried."""
        retry_at_s = self._retained.get(segment.topic_id_partition, {}).get(segment.id, 0.0)
        return max(0.0, retry_at_s - self._clock.monotonic_s())

    def retained_of(self, partition: TopicIdPartition) -> int:
        """Return the number of segments of the partition that the store keeps although they were deleted."""
        return len(self._retained.get(partition, ()))

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget the refused deletions of a partition that is led elsewhere now, or gone."""
        self._retained.pop(partition, None)

    async def is_last_copy(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return whether an unfinished copy is whole in the store, and has offsets that no readable segment has there.

        Such a copy was finished in a metadata store that has lost that write, as one does that is restored from a
        backup. Its records may be in the tier alone, and so may those of a compaction's output.

        Raises:
            RemoteStorageError: the store did not answer.
        """
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            return False
        return await is_last_copy(
            metadata, self._metadata.view(metadata.segment.topic_id_partition), self._remote.objects_present
        )

    async def delete(
        self,
        metadata: RemoteLogSegmentMetadata,
        *,
        custom_metadata: bytes | None = None,
        reason: str = DeleteReason.DANGLING,
        detail: str = "",
    ) -> None:
        """Run the whole cycle at once: for a segment that was never readable, or whose grace is over.

        Args:
            metadata: the segment, in any state but finished deletion.
            custom_metadata: the value that finds the objects, where the row could not be given it.
            reason: the reason, for the ledger.
            detail: the reason in more words.

        Raises:
            RemoteObjectRetainedError: the store keeps an object; noted, and tried again after ``RETAINED_RETRY_S``.
            TierError: the cycle stopped half-way; a later pass repeats it.
        """
        if not _was_never_readable(metadata):
            await self._note_once(metadata, LedgerStep.DELETED, reason, detail)
            await self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, metadata.soft_delete)
        else:
            await self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, metadata.soft_delete)
            if await self._remote.any_object_present(_found_by(metadata, custom_metadata)):
                await self._note_once(metadata, LedgerStep.DELETED, reason, detail)
        await self._remove(metadata, custom_metadata, reason)

    async def begin(
        self, metadata: RemoteLogSegmentMetadata, *, reason: str, detail: str, delete_after_ms: int
    ) -> RemoteLogSegmentMetadata:
        """Begin to delete a readable segment; return its row. Until ``delete_after_ms`` it can be taken back.

        Raises:
            StateDirError: the ledger cannot be written; nothing was done.
            TierError: it stopped half-way; a later pass repeats it.
        """
        await self._note(metadata, LedgerStep.TOMBSTONED, reason, detail)
        self._noted.pop(metadata.segment.id, None)
        soft = SoftDelete(reason, delete_after_ms)
        row = await self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, soft)
        await self.mark(row, detail=detail)
        return row

    async def mark(self, metadata: RemoteLogSegmentMetadata, *, detail: str = "") -> None:
        """Write the tombstone of a segment whose row says that it is being deleted; one that is there stays.

        Raises:
            RemoteStorageError: the tombstone could not be written.
        """
        soft = metadata.soft_delete
        assert soft is not None, "only what was readable gets a tombstone"
        tombstone = Tombstone(
            reason=soft.reason,
            deleted_at_ms=metadata.event_timestamp_ms,
            delete_after_ms=soft.delete_after_ms,
            broker_id=metadata.broker_id,
            detail=detail,
        )
        try:
            await self._remote.write_tombstone(metadata, tombstone)
        except RemoteIntegrityError as error:  # damaged, but there: a rebuild ignores the segment all the same
            log.warning("tombstone_damaged", segment=str(metadata.segment), problem=str(error), remedy=error.remedy)

    async def mark_left(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Write the tombstone as ``mark`` does, where the begin of a deletion, or a compaction, has left it out.

        Raises:
            StateDirError: the ledger cannot be written; nothing was done.
            RemoteStorageError: the tombstone could not be written.
        """
        detail = ""
        if (
            metadata.soft_delete is not None
            and metadata.soft_delete.is_replaced
            and not await self._is_marked(metadata)
        ):
            detail = "its records are in the output of a compaction or merge"
            await self._note(metadata, LedgerStep.TOMBSTONED, DeleteReason.REPLACED, detail)
        await self.mark(metadata, detail=detail)

    async def finish(self, metadata: RemoteLogSegmentMetadata, *, detail: str = "its grace is over") -> bool:
        """Remove what is left of a segment whose grace is over.

        Where the tombstone is gone while every object is there, a caller undeletes the segment, or another leader has
        undeleted it. Then the grace begins anew under our claim, and nothing is removed. A replaced segment never comes
        back. A tombstone without proof counts as missing: with a key ring one of ours takes its place.

        Returns:
            True if the segment is gone.

        Raises:
            RemoteObjectRetainedError: the store keeps an object; noted, and tried again after ``RETAINED_RETRY_S``.
            FencedError: another leader epoch or session owns the partition; nothing was removed.
            TierError: it stopped half-way; a later pass repeats it.
        """
        soft = metadata.soft_delete
        assert soft is not None, "what was never readable has no grace"
        if soft.is_replaced:
            await self.mark_left(metadata)
        elif not await self._is_marked(metadata) and await self._remote.objects_present(metadata):
            grace_ms = max(0, soft.delete_after_ms - metadata.event_timestamp_ms)
            detail = "its tombstone was gone, or nothing proved it: the grace begins anew"
            log.warning("tombstone_missing", segment=str(metadata.segment), grace_s=grace_ms / 1000)
            after_ms = self._clock.now_ms() + grace_ms
            await self.begin(metadata, reason=soft.reason, detail=detail, delete_after_ms=after_ms)
            return False
        # Objects are fenced by nothing: a leader that lost the partition in its sleep must not remove what a new leader
        # takes back.
        await self._metadata.prove_leadership(metadata.segment.topic_id_partition)
        await self._note_once(metadata, LedgerStep.DELETED, soft.reason, detail)
        await self._remove(metadata, None, soft.reason)
        return True

    async def end(self, metadata: RemoteLogSegmentMetadata, *, reason: str, detail: str) -> None:
        """Call ``finish`` for a segment that was readable, and ``delete`` for any other.

        Raises:
            As ``finish``.
        """
        if metadata.soft_delete is not None:
            await self.finish(metadata)
        else:
            await self.delete(metadata, reason=reason, detail=detail)

    async def finish_at_once(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Call ``finish`` before the grace is over, unless another caller deletes or undeletes; return True if gone.

        Raises:
            As ``finish``.
        """
        with self.exclusively(metadata) as alone:
            why = "an operator asked not to wait for its grace"
            return alone and metadata.soft_delete is not None and await self.finish(metadata, detail=why)

    async def delete_objects(self, metadata: RemoteLogSegmentMetadata, *, custom_metadata: bytes | None = None) -> None:
        """Remove the objects only.

        Raises:
            RemoteStorageError: some are still there.
        """
        topic = metadata.segment.topic_id_partition.topic
        self._recorder.delete_requested(topic)
        try:
            await self._remote.delete_log_segment_data(_found_by(metadata, custom_metadata))
        except RemoteObjectRetainedError:
            raise  # an answer, no failure
        except Exception:
            self._recorder.delete_failed(topic)
            raise

    async def note_undelete(self, metadata: RemoteLogSegmentMetadata, detail: str) -> None:
        """Write down that a segment is taken back, before it is.

        Raises:
            StateDirError: the ledger cannot be written.
        """
        reason = metadata.soft_delete.reason if metadata.soft_delete else ""
        await self._note(metadata, LedgerStep.UNDELETED, reason, detail)
        self._noted.pop(metadata.segment.id, None)
        self._forget_retained(metadata.segment)

    async def _remove(self, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None, reason: str) -> None:
        try:
            await self.delete_objects(metadata, custom_metadata=custom_metadata)
        except RemoteObjectRetainedError as error:
            await self._retain(metadata, reason, error)
            raise
        except TierError as error:
            with contextlib.suppress(StateDirError):  # the failure itself matters more than its line
                await self._note_once(metadata, LedgerStep.FAILED, reason, str(error))
            raise
        await self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, None)
        self._noted.pop(metadata.segment.id, None)
        self._forget_retained(metadata.segment)

    async def _retain(self, metadata: RemoteLogSegmentMetadata, reason: str, error: TierError) -> None:
        """Take note that the store keeps the objects, once per process in ledger and log."""
        of_partition = self._retained.setdefault(metadata.segment.topic_id_partition, {})
        known = metadata.segment.id in of_partition
        of_partition[metadata.segment.id] = self._clock.monotonic_s() + RETAINED_RETRY_S
        if not known:
            log.warning("segment_retained", segment=str(metadata.segment), problem=str(error), remedy=error.remedy)
            await self._note(metadata, LedgerStep.RETAINED, reason, str(error))

    def _forget_retained(self, segment: RemoteLogSegmentId) -> None:
        """Forget that the store keeps objects of the segment."""
        of_partition = self._retained.get(segment.topic_id_partition, {})
        of_partition.pop(segment.id, None)
        if not of_partition:
            self._retained.pop(segment.topic_id_partition, None)

    async def _is_marked(self, metadata: RemoteLogSegmentMetadata) -> bool:
        try:
            return await self._remote.read_tombstone(metadata) is not None
        except RemoteUnauthenticatedError:  # it may have been put where an undelete has removed ours
            return False
        except RemoteIntegrityError:  # damaged, but there
            return True

    async def _note_once(self, metadata: RemoteLogSegmentMetadata, step: LedgerStep, reason: str, detail: str) -> None:
        """Write a line unless this process has written one of that step since the deletion began."""
        noted = self._noted.get(metadata.segment.id, frozenset())
        if step in noted:
            return
        await self._note(metadata, step, reason, detail)
        self._noted[metadata.segment.id] = noted | {step}
        if len(self._noted) > _NOTED_SEGMENTS:
            del self._noted[next(iter(self._noted))]

    async def _note(self, metadata: RemoteLogSegmentMetadata, step: LedgerStep, reason: str, detail: str) -> None:
        await self._ledger.record(
            LedgerEntry.of(
                metadata,
                step,
                reason=str(reason),
                detail=detail,
                time_ms=self._clock.now_ms(),
                broker_id=self._broker_id,
            )
        )

    async def _step(
        self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, soft_delete: SoftDelete | None
    ) -> RemoteLogSegmentMetadata:
        update = metadata.advance(
            state, event_timestamp_ms=self._clock.now_ms(), broker_id=self._broker_id, soft_delete=soft_delete
        )
        await self._metadata.update(update)
        self.steps += 1
        return metadata.updated(update)


def _was_never_readable(metadata: RemoteLogSegmentMetadata) -> bool:
    """Return True if the segment is what an attempt to copy left: what was readable has a grace when it goes."""
    return metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED and metadata.soft_delete is None


def _found_by(metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None) -> RemoteLogSegmentMetadata:
    return metadata if custom_metadata is None else replace(metadata, custom_metadata=custom_metadata)
