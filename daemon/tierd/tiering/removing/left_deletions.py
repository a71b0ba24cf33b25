"""LeftDeletions: ends the deletions of partitions that this broker led last and that have left its log dirs.

A topic that the cluster deleted has no leader any more. Its tier may stay (``topics.delete_with_topic``), and deletions
that had begun in it, or copies that never ended, would stay for good: the tasks of a leader end with the leadership.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Final
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import FencedError, RemoteObjectRetainedError, TierError
from tierd.metadata import (
    KeyValueStore,
    MetadataKeyFactory,
    RemoteLogMetadataManager,
    list_partitions,
    read_claims,
)
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.tiering.copy_plan import dangling_segments
from tierd.tiering.removing.deletion import RETAINED_RETRY_S, SegmentDeletion
from tierd.tiering.removing.last_copy import KEPT, KEPT_REMEDY
from tierd.tiering.removing.ledger import DeleteReason

log = structlog.get_logger()

_INTERVAL_S: Final = 3600.0
_NO_LIMIT: Final = 1 << 31


async def partitions_left(
    store: KeyValueStore,
    keys: MetadataKeyFactory,
    *,
    broker_id: int,
    is_here: Callable[[TopicIdPartition], bool],
) -> dict[TopicIdPartition, int]:
    """Return the partitions that this broker led last and that are not here any more, with the epoch of its claim.

    The same broker may claim them with that epoch again; a later leader has a higher epoch, and fences that claim.
    Partitions that are deleted as a whole are left out.

    Raises:
        MetadataError: the store cannot say what there is.
    """
    absent = [partition for partition in await list_partitions(store, keys) if not is_here(partition)]
    claims = await read_claims(store, keys, absent)
    return {partition: claim.leader_epoch for partition, claim in claims.items() if claim.broker_id == broker_id}


class LeftDeletions:
    """Task that claims partitions that left, one after the other, to end their deletions. A ``PartitionTask``.

    Attributes:
        name: the name; there is one such task.
        wake: the event that is set when a partition has left.
    """

    name: Final = "end deletions of partitions that left"

    def __init__(
        self,
        *,
        store: KeyValueStore,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        being_copied: Collection[UUID],
        is_here: Callable[[TopicIdPartition], bool],
        clock: Clock,
        broker_id: int,
        copy_grace_s: float,
    ) -> None:
        """Begin nothing yet.

        Args:
            store: the one below ``metadata``.
            metadata: the rows of the tier.
            deletion: deletes one segment.
            being_copied: ids of the copies under way in this process, live.
            is_here: returns True if a log dir of this host has the partition.
            clock: time.
            broker_id: this broker.
            copy_grace_s: age at which a copy that never ended is removed.
        """
        self._store = store
        self._metadata = metadata
        self._deletion = deletion
        self._being_copied = being_copied
        self._is_here = is_here
        self._clock = clock
        self._broker_id = broker_id
        self._copy_grace_s = copy_grace_s
        self.wake: Final = asyncio.Event()

    async def run_once(self) -> float:
        """End the deletions that are due; return seconds until the next run. A partition that fails stops no other.

        Raises:
            MetadataError: the store cannot say what there is.
        """
        left = await partitions_left(self._store, self._metadata.keys, broker_id=self._broker_id, is_here=self._is_here)
        waits = [_INTERVAL_S]
        for partition, leader_epoch in left.items():
            try:
                waits.append(await self._end(partition, leader_epoch))
            except FencedError:
                continue  # another broker leads it by now
            except TierError as error:
                log.warning(
                    "left_deletion_not_ended", partition=str(partition), problem=str(error), remedy=error.remedy
                )
        return min(waits)

    async def _end(self, partition: TopicIdPartition, leader_epoch: int) -> float:
        if self._is_here(partition):
            return _INTERVAL_S
        try:
            await self._metadata.become_leader(partition, leader_epoch)
            await self._metadata.ensure_ready(partition)
            for metadata in self._due(partition):
                if self._is_here(partition):  # its leader goes on
                    return _INTERVAL_S
                await self._remove(metadata)
            return self._wait_s(partition)
        finally:
            if not self._is_here(partition):
                self._metadata.stop(partition)

    async def _remove(self, metadata: RemoteLogSegmentMetadata) -> None:
        with self._deletion.exclusively(metadata) as alone:
            if not alone:
                return
            try:
                if await self._is_last_copy(metadata):
                    return
                await self._deletion.end(metadata, reason=DeleteReason.DANGLING, detail=f"left {metadata.state.name}")
            except RemoteObjectRetainedError:
                return  # noted
        log.info("left_deletion_ended", segment=str(metadata.segment), was=metadata.state.name)

    async def _is_last_copy(self, metadata: RemoteLogSegmentMetadata) -> bool:
        if is_kept := await self._deletion.is_last_copy(metadata):
            log.warning("last_copy_kept", segment=str(metadata.segment), problem=KEPT, remedy=KEPT_REMEDY)
        return is_kept

    def _due(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        dangling = self._dangling(partition)
        soft = [metadata for metadata in self._soft_deleted(partition) if self._grace_left_s(metadata) <= 0]
        return [metadata for metadata in (*dangling[0], *soft) if not self._deletion.retained_for_s(metadata.segment)]

    def _wait_s(self, partition: TopicIdPartition) -> float:
        """Return the seconds until more of the partition is due, as far as that is known."""
        _, next_due_ms = self._dangling(partition)
        waits = [left_s for metadata in self._soft_deleted(partition) if (left_s := self._grace_left_s(metadata)) > 0]
        if next_due_ms is not None:
            waits.append(max(1.0, (next_due_ms - self._clock.now_ms()) / 1000))
        return min(waits, default=RETAINED_RETRY_S)

    def _dangling(self, partition: TopicIdPartition) -> tuple[list[RemoteLogSegmentMetadata], int | None]:
        return dangling_segments(
            self._metadata.view(partition).list(),
            being_copied=self._being_copied,
            now_ms=self._clock.now_ms(),
            grace_ms=round(self._copy_grace_s * 1000),
            limit=_NO_LIMIT,
        )

    def _soft_deleted(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        for metadata in self._metadata.view(partition).list():
            if metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED and metadata.soft_delete is not None:
                yield metadata

    def _grace_left_s(self, metadata: RemoteLogSegmentMetadata) -> float:
        assert metadata.soft_delete is not None, "asked for of what was readable"
        return (metadata.soft_delete.delete_after_ms - self._clock.now_ms()) / 1000
