"""Undelete of segments that are in their grace (DESIGN 4).

::

    every object there? ─► the bucket's log start back ─► ledger ─► tombstone removed
        ─► row COPY_FINISHED, and the log start back, in one step

The tombstone goes first: a crash behind it leaves a row that is still being deleted, and a bucket that says the segment
lives. Then expiration begins the grace anew, and the operator repeats the command. The other order could leave a live
segment that a rebuild from the bucket would ignore.
"""

import asyncio
import contextlib
from collections.abc import Collection
from functools import partial
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import RefusedError, RemoteResourceNotFoundError
from tierd.metadata import PartitionView, RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.tiering.removing.deletion import DeletableStorage, SegmentDeletion
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts
from tierd.tiering.removing.log_start_keeper import LogStartKeeper
from tierd.tiering.removing.undelete_plan import (
    COMPACTED_SINCE,
    TakenBack,
    is_compacted_since,
    plan_undelete,
    refusal,
    refuse,
)
from tierd.tiering.topic_policy import FindTopicPolicy

log = structlog.get_logger()

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Undeletion:
    """Undelete of segments of led partitions. Interrupted anywhere, the command may be repeated."""

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadataManager,
        remote: DeletableStorage,
        deletion: SegmentDeletion,
        log_starts: LogStartKeeper,
        policies: FindTopicPolicy,
        clock: Clock,
        broker_id: int,
    ) -> None:
        self._metadata = metadata
        self._remote = remote
        self._deletion = deletion
        self._log_starts = log_starts
        self._policies = policies
        self._clock = clock
        self._broker_id = broker_id

    async def plan(
        self, partition: TopicIdPartition, local: LocalFacts, wanted: Collection[UUID] | None
    ) -> tuple[TakenBack, ...]:
        """Return the segments that ``run`` would undelete, newest first, each with what speaks against it.

        Raises:
            RemoteStorageNotReadyError: the metadata is not loaded.
            RemoteResourceNotFoundError: a wanted segment is unknown, gone, or not being deleted.
            RefusedError: the whole partition is being deleted, or a wanted segment was replaced.
        """
        policy = self._policies(partition.topic)
        return await asyncio.to_thread(  # for thousands of segments it takes seconds
            plan_undelete,
            self._metadata.view(partition),
            local,
            lambda _: policy,
            wanted,
            now_ms=self._clock.now_ms(),
            retained=lambda segment: self._deletion.retained_for_s(segment) > 0,
        )

    async def run(
        self,
        partition: TopicIdPartition,
        local: LocalFacts,
        wanted: Collection[UUID] | None,
        *,
        force: bool = False,
    ) -> tuple[TakenBack, ...]:
        """Take segments back, newest first; return those that are back.

        Args:
            partition: this broker leads it, and its metadata is loaded.
            local: its local log.
            wanted: ids, None for everything in its grace.
            force: take back also segments with a problem.

        Raises:
            RefusedError: the plan has a refusal, a segment was replaced (``force`` does not help then), or its
                objects are going at this moment; nothing was done to that one, nor to older ones.
            RemoteResourceNotFoundError: a wanted segment, or an object of one, is gone.
            FencedError: another leader owns the partition.
            TierError: the undelete stopped half-way; repeat it.
        """
        planned = await self.plan(partition, local, wanted)
        refuse(planned, force=force)
        for each in planned:
            await self._take_back(each, force=force)
        return planned

    async def _take_back(self, each: TakenBack, *, force: bool) -> None:
        metadata = each.metadata
        with self._deletion.exclusively(metadata) as alone:
            if not alone:
                raise RefusedError(
                    f"{metadata.segment}: its deletion goes on at this moment", remedy="tierd segments shows its state"
                )
            if not await self._remote.objects_present(metadata):
                raise RemoteResourceNotFoundError(
                    f"{metadata.segment}: some of its objects are gone already",
                    remedy="it cannot come back; another replica may still have the records",
                )
            async with self._log_start_lowered(metadata.segment.topic_id_partition, each.log_start_offset):
                await self._deletion.note_undelete(metadata, "taken back by an operator")
                await self._remote.remove_tombstone(metadata)
                now_ms = self._clock.now_ms()
                update = metadata.advance(_FINISHED, event_timestamp_ms=now_ms, broker_id=self._broker_id)
                require = partial(self._require_not_compacted, metadata) if not force else lambda _: None
                await self._metadata.undelete(update, log_start_offset=each.log_start_offset, require=require)
        log.info(
            "segment_undeleted",
            segment=str(metadata.segment),
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            log_start_offset=each.log_start_offset,
        )

    def _require_not_compacted(self, metadata: RemoteLogSegmentMetadata, view: PartitionView) -> None:
        """Raise where a compaction was committed since the plan was made, in the same step that takes it back."""
        policy = self._policies(metadata.segment.topic_id_partition.topic)
        if "compact" in policy.cleanup_policy and is_compacted_since(view, metadata):
            raise refusal(metadata, COMPACTED_SINCE)

    def _log_start_lowered(
        self, partition: TopicIdPartition, offset: int | None
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Lower the log start in the bucket, where the row's will be lowered too."""
        return contextlib.nullcontext() if offset is None else self._log_starts.lowered(partition, offset)
