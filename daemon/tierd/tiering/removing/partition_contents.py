"""PartitionContents: removes everything that the tier has of a partition that is deleted as a whole.

::

    every row DELETE_STARTED ─► …the grace… ─► objects of every segment ─► unfinished uploads ─► log start record
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.config import ExpireSettings
from tierd.errors import RemoteObjectRetainedError
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.tiering.removing.deletion import RETAINED_RETRY_S, SegmentDeletion
from tierd.tiering.removing.ledger import DeleteReason
from tierd.tiering.removing.log_start_keeper import LogStartKeeper
from tierd.tiering.removing.sweep import UploadSweep
from tierd.tiering.removing.workers import in_order

log = structlog.get_logger()

_DETAIL: Final = "its whole partition is deleted"


class PartitionContents:
    """Remover of the segments, unfinished uploads and log start of deleted partitions that this broker has claimed."""

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        being_copied: Collection[UUID],
        slots: asyncio.Semaphore,
        log_starts: LogStartKeeper,
        uploads: UploadSweep,
        clock: Clock,
        settings: ExpireSettings,
    ) -> None:
        """Remove nothing yet.

        Args:
            metadata: the rows of the segments.
            deletion: deletes one segment.
            being_copied: ids of the copies under way in this process, live.
            slots: bounds the segments deleted at once, over all partitions.
            log_starts: removes the partition's log start from the bucket.
            uploads: discards the unfinished uploads of dead processes.
            clock: time.
            settings: the grace, the interval and the width of expiration.
        """
        self._metadata = metadata
        self._deletion = deletion
        self._being_copied = being_copied
        self._slots = slots
        self._log_starts = log_starts
        self._uploads = uploads
        self._clock = clock
        self._settings = settings
        self._at_once: set[TopicIdPartition] = set()
        self._marked: dict[TopicIdPartition, set[UUID]] = {}  # segments whose tombstones are known to be there

    @property
    def steps(self) -> int:
        """Return the number of durable steps that deletions in this process have taken."""
        return self._deletion.steps

    def skip_grace(self, partition: TopicIdPartition) -> None:
        """Remove the objects of ``partition`` without a grace. A restart forgets this."""
        self._at_once.add(partition)

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget a partition that is deleted, or that another broker deletes."""
        self._deletion.forget(partition)
        self._at_once.discard(partition)
        self._marked.pop(partition, None)

    async def remove(self, partition: TopicIdPartition) -> float | None:
        """Remove what may go now; return seconds until more may go, None when nothing is left.

        Raises:
            FencedError: another broker has claimed the partition.
            TierError: the removal stopped half-way; a later call goes on with it.
        """
        wait_s = await self._remove_segments(partition)
        if wait_s is not None:
            return wait_s
        await self._uploads.discard_of(partition)  # the partition has no leader: no other sweep would judge its uploads
        return None if await self._remove_log_start(partition) else RETAINED_RETRY_S

    async def _remove_log_start(self, partition: TopicIdPartition) -> bool:
        """Remove the log start record; return False where the store keeps it."""
        try:
            await self._log_starts.remove(partition)
        except RemoteObjectRetainedError as error:
            log.warning("log_start_retained", partition=str(partition), problem=str(error), remedy=error.remedy)
            return False
        return True

    async def _remove_segments(self, partition: TopicIdPartition) -> float | None:
        """Change all rows, then remove the objects; return seconds until more may go, None when nothing is left."""
        width = self._settings.concurrency
        await in_order(self._rows(partition), self._begin, slots=self._slots, width=width)
        await in_order(self._rows(partition), self._finish, slots=self._slots, width=width)
        waits = [self._wait_s(row) for row in self._rows(partition)]
        return min(waits) if waits else None

    def _rows(self, partition: TopicIdPartition) -> Sequence[RemoteLogSegmentMetadata]:
        return sorted(self._metadata.view(partition).list(), key=lambda metadata: metadata.start_offset)

    async def _begin(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Begin the deletion of a readable segment; put a missing tombstone of a segment in its grace."""
        marked = self._marked.setdefault(metadata.segment.topic_id_partition, set())
        is_readable = metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        in_grace = metadata.soft_delete is not None and self._wait_s(metadata) > 0
        if not is_readable and (not in_grace or metadata.segment.id in marked):
            return
        at_once = metadata.segment.topic_id_partition in self._at_once
        after_ms = self._clock.now_ms() + (0 if at_once else round(self._settings.grace_s * 1000))
        with self._deletion.exclusively(metadata) as alone:
            if not alone:
                return
            if is_readable:
                await self._deletion.begin(
                    metadata, reason=DeleteReason.TOPIC_DELETED, detail=_DETAIL, delete_after_ms=after_ms
                )
            else:
                await self._deletion.mark(metadata, detail=_DETAIL)
            marked.add(metadata.segment.id)

    async def _finish(self, metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.segment.id in self._being_copied or self._wait_s(metadata) > 0:
            return
        with self._deletion.exclusively(metadata) as alone:
            if not alone:
                return
            try:
                await self._deletion.end(metadata, reason=DeleteReason.TOPIC_DELETED, detail=_DETAIL)
            except RemoteObjectRetainedError:
                return  # the deletion has noted it; the partition stays STARTED until the store releases the object

    def _wait_s(self, metadata: RemoteLogSegmentMetadata) -> float:
        """Return seconds until the objects of the segment may go."""
        if retained_s := self._deletion.retained_for_s(metadata.segment):
            return min(retained_s, RETAINED_RETRY_S)
        if metadata.soft_delete is None or metadata.segment.topic_id_partition in self._at_once:
            return self._settings.interval_s if metadata.segment.id in self._being_copied else 0.0
        return max(0.0, (metadata.soft_delete.delete_after_ms - self._clock.now_ms()) / 1000)
