"""SegmentCopy: one attempt to bring one checked segment into the tier (design: one segment's way; remote-tiering 10.6).

::

    add COPY_STARTED ──► upload ──► source unchanged? ──► update COPY_FINISHED
          │                │              │                      │
          │ fails          │ fails        │ no                   │ fails, after retries
          ▼                ▼              ▼                      ▼
       nothing         delete cycle at once                left for the sweep; not readable

An attempt that could not be deleted, or whose end could not be recorded, is handed to ``AbandonedCopies``: a sweep may
remove the row before the last object of the attempt arrives.
"""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import (
    BackendUnavailableError,
    MetadataError,
    OutcomeUnknownError,
    RemoteIntegrityError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.remote import RemoteStorageManager
from tierd.tiering.copying.prepare import PreparedSegment, require_unchanged
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.segment_writes import SegmentWrites

log = structlog.get_logger()

CUSTOM_METADATA_LIMIT_BYTES = 128  # Kafka: remote.log.metadata.custom.metadata.max.bytes
_GIB = 1 << 30
_FINISH_DELAYS_S = (0.5, 1.0, 2.0)


class CustomMetadataTooLongError(RemoteStorageError):
    """The remote storage asks to keep more custom metadata than fits; copying stops until leadership changes."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Identity of the writer, as it stands in the row of a segment."""

    broker_id: int
    session_id: UUID


class SegmentCopy:
    """Copier of checked segments of any partition. Cancelled anywhere, it leaves what the sweep removes."""

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadataManager,
        remote: RemoteStorageManager,
        deletion: SegmentDeletion,
        recorder: TieringRecorder,
        clock: Clock,
        writer: Writer,
        writes: SegmentWrites,
        attempt_timeout_s: float,
    ) -> None:
        """Copy nothing yet.

        Args:
            metadata: the rows of the tier.
            remote: moves the bytes.
            deletion: removes failed attempts.
            recorder: counts attempts.
            clock: time.
            writer: the identity of this process.
            writes: gives fresh ids, and takes over an attempt that may have left objects without a row.
            attempt_timeout_s: deadline of an upload of up to 1 GiB; a larger upload has it for each GiB.
        """
        self._metadata = metadata
        self._remote = remote
        self._deletion = deletion
        self._recorder = recorder
        self._clock = clock
        self._writer = writer
        self._writes = writes
        self._attempt_timeout_s = attempt_timeout_s

    async def copy(
        self,
        partition: TopicIdPartition,
        held: HeldSegment,
        prepared: PreparedSegment,
        *,
        leader_epoch: int,
        directory: Path,
    ) -> RemoteLogSegmentMetadata:
        """Make one attempt under a fresh id; return the row as it was begun. By then the stored row is finished.

        Raises:
            TierError: the attempt failed and was deleted, or is left for the sweep; the frontier must not move.
            FencedError: another leader epoch or session owns the partition.
        """
        with self._writes.fresh_id() as segment_id:
            segment = RemoteLogSegmentId(partition, segment_id)
            started = self._describe(segment, held, prepared, leader_epoch=leader_epoch)
            # The row is durable before the first byte leaves. A cancellation in between leaves a segment that readers
            # ignore and the sweep removes, and no object without a row.
            await self._add(started)
            try:
                custom_metadata = await self._upload_or_delete(started, held, prepared, directory)
                await self._finish(started, custom_metadata)
            except (asyncio.CancelledError, MetadataError):
                self._writes.abandon(started)
                raise
            return started

    def _describe(
        self, segment: RemoteLogSegmentId, held: HeldSegment, prepared: PreparedSegment, *, leader_epoch: int
    ) -> RemoteLogSegmentMetadata:
        plain = RemoteLogSegmentMetadata(
            segment=segment,
            start_offset=held.base_offset,
            end_offset=held.end_offset,
            max_timestamp_ms=prepared.max_timestamp_ms,
            broker_id=self._writer.broker_id,
            event_timestamp_ms=self._clock.now_ms(),
            size_bytes=prepared.log_file.size_bytes,
            segment_leader_epochs=prepared.epochs,
            leader_epoch=leader_epoch,
            session_id=self._writer.session_id,
            txn_index_empty=prepared.txn_index_empty,
        )
        located = replace(plain, custom_metadata=self._remote.custom_metadata(plain))
        _require_short(located.custom_metadata, located)
        return located

    async def _add(self, started: RemoteLogSegmentMetadata) -> None:
        try:
            await self._metadata.add(started)
        except OutcomeUnknownError:
            # Never upload under a row that may not exist: after a reload the same add says whether it does.
            await self._metadata.ensure_ready(started.segment.topic_id_partition)
            await self._metadata.add(started)

    async def _upload_or_delete(
        self, started: RemoteLogSegmentMetadata, held: HeldSegment, prepared: PreparedSegment, directory: Path
    ) -> bytes | None:
        custom_metadata: bytes | None = None
        try:
            custom_metadata = await self._upload(started, prepared)
            _require_short(custom_metadata, started)
            await asyncio.to_thread(require_unchanged, held, prepared.log_file, directory)
        except Exception as error:  # after any failure of the storage the objects of the attempt are deleted
            await self._delete_attempt(started, custom_metadata)
            if isinstance(error, RemoteIntegrityError):  # the broker may have compacted the log meanwhile
                await asyncio.to_thread(require_unchanged, held, prepared.log_file, directory)
            if isinstance(error, TierError):
                raise
            raise RemoteStorageError(
                f"{started.segment}: copy failed: {type(error).__name__}: {error}", remedy="it is tried again"
            ) from error
        return custom_metadata

    async def _upload(self, started: RemoteLogSegmentMetadata, prepared: PreparedSegment) -> bytes | None:
        self._recorder.copy_requested(started.segment.topic_id_partition.topic)
        limit_s = self._attempt_timeout_s * max(1.0, started.size_bytes / _GIB)
        try:
            async with asyncio.timeout(limit_s) as deadline:
                return await self._remote.copy_log_segment_data(started, prepared.data)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise RetriableRemoteStorageError(
                f"{started.segment}: copy took longer than {limit_s:.0f} s",
                remedy="raise copy.attempt_timeout, or look at the store",
            ) from error

    async def _delete_attempt(self, started: RemoteLogSegmentMetadata, custom_metadata: bytes | None) -> None:
        """Delete a failed attempt at once. A failure is only logged, because the sweep repeats the deletion."""
        try:
            await self._deletion.delete(started, custom_metadata=custom_metadata)
        except TierError as error:
            log.warning("attempt_not_deleted", segment=str(started.segment), problem=str(error), remedy=error.remedy)
            self._writes.abandon(started)

    async def _finish(self, started: RemoteLogSegmentMetadata, custom_metadata: bytes | None) -> None:
        """Record the copy as finished. The write is repeated for a while, because the bytes are in the tier already."""
        update = replace(
            started.advance(
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                event_timestamp_ms=self._clock.now_ms(),
                broker_id=self._writer.broker_id,
            ),
            custom_metadata=custom_metadata if custom_metadata is not None else started.custom_metadata,
        )
        for delay_s in (*_FINISH_DELAYS_S, None):
            try:
                await self._metadata.ensure_ready(started.segment.topic_id_partition)
                await self._metadata.update(update)
            except (BackendUnavailableError, OutcomeUnknownError):
                if delay_s is None:
                    raise
                await self._clock.sleep(delay_s)
            else:
                return


def _require_short(custom_metadata: bytes | None, metadata: RemoteLogSegmentMetadata) -> None:
    if custom_metadata is not None and len(custom_metadata) > CUSTOM_METADATA_LIMIT_BYTES:
        raise CustomMetadataTooLongError(
            f"{metadata.segment}: {len(custom_metadata)} bytes of custom metadata, "
            f"at most {CUSTOM_METADATA_LIMIT_BYTES} are kept",
            remedy="shorten remote.key_prefix and restart",
        )
