"""PartitionRemover: deletes the tier of whole partitions, and continues after restarts (remote-tiering 13).

::

    asked ─► MARKED ─► STARTED ─► every row DELETE_STARTED ─► …the grace… ─► objects go ─► FINISHED: rows are erased
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.config import ExpireSettings
from tierd.errors import FencedError, RemoteResourceNotFoundError, TierError
from tierd.metadata import (
    KeyValueStore,
    PartitionBeingDeleted,
    RemoteLogMetadataManager,
    partitions_being_deleted,
    read_partition,
)
from tierd.model import RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.partition_contents import PartitionContents

log = structlog.get_logger()

TAKEOVER_S: Final = 3600.0
"""Time that the broker that began a deletion, or led the partition, has to continue before another broker does."""
_MARKED: Final = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
_STARTED: Final = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
_FINISHED: Final = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED


class PartitionRemover:
    """Task that deletes the partitions that it was asked for, and those whose deletion had begun. A ``PartitionTask``.

    A partition that fails is reported and tried again. It does not stop the others.

    Attributes:
        name: the name; there is one such task.
        wake: the event that is set when a deletion is asked for.
    """

    name: Final = "remove deleted partitions"

    def __init__(
        self,
        *,
        store: KeyValueStore,
        metadata: RemoteLogMetadataManager,
        contents: PartitionContents,
        recorder: TieringRecorder,
        clock: Clock,
        broker_id: int,
        settings: ExpireSettings,
        on_error: Callable[[TopicIdPartition, TierError], None] | None = None,
    ) -> None:
        """Delete nothing yet.

        Args:
            store: the key-value store below ``metadata``.
            metadata: the rows of the tier.
            contents: removes what the tier has of one partition.
            recorder: counts passes, and forgets topics whose last partition here is deleted.
            clock: time.
            broker_id: this broker.
            settings: the grace and the wait after a failure.
            on_error: is called with each failure; by default each failure is logged.
        """
        self._store = store
        self._metadata = metadata
        self._contents = contents
        self._recorder = recorder
        self._clock = clock
        self._broker_id = broker_id
        self._settings = settings
        self._on_error = on_error or _log_failure
        self._asked: dict[TopicIdPartition, float] = {}  # and since when, monotonic
        self._claimed: set[TopicIdPartition] = set()  # announced to the metadata by this task alone
        self.wake: Final = asyncio.Event()

    @property
    def progress(self) -> object:
        """Return a value that changes while a pass makes progress."""
        return self._contents.steps

    def delete_tier(self, partition: TopicIdPartition) -> None:
        """Delete the tier of a partition that the cluster deleted, after the grace; ``run_once`` begins the deletion.

        The owner of the partition in the metadata store deletes it. Another broker does after ``TAKEOVER_S``, if no
        deletion has begun by then.
        """
        self._asked.setdefault(partition, self._clock.monotonic_s())
        self.wake.set()

    async def accept(self, partition: TopicIdPartition, *, at_once: bool = False) -> None:
        """Mark the partition for deletion; after the return, a deletion that a crash interrupts is continued.

        Args:
            partition: its tier is deleted; further copies are refused.
            at_once: without a grace. A restart forgets this for what was not begun by then.

        Raises:
            RemoteResourceNotFoundError: the metadata has no such partition, or it is deleted already.
            FencedError: another broker has taken the partition meanwhile.
            TierError: the partition is not marked; ask again.
        """
        view = await read_partition(self._store, self._metadata.keys, partition)
        if view.row is None or view.row.is_tombstone:
            raise RemoteResourceNotFoundError(
                f"{partition} has nothing in the tier", remedy="tierd segments shows what a partition has"
            )
        if at_once:
            self._contents.skip_grace(partition)
        if view.delete_state is None:
            claim = view.row.claim
            try:
                await self._claim(partition, claim.leader_epoch, is_ours=claim.broker_id == self._broker_id)
                await self._put(partition, _MARKED)
            except FencedError:
                self._release(partition)
                raise
            self._claimed.add(partition)
            log.info("partition_marked_for_deletion", partition=str(partition), segments=len(view.segments))
        self.wake.set()

    async def run_once(self) -> float | None:
        """Continue every deletion of this broker, or left by another one; return seconds until there is more to do.

        Raises:
            MetadataError: the metadata store does not answer, or is damaged.
        """
        waits = [await self._mark_asked()]
        claimed = frozenset(self._claimed)
        entries = await partitions_being_deleted(self._store, self._metadata.keys)
        for entry in entries:
            try:
                waits.append(await self._go_on(entry))
            except TierError as error:
                if isinstance(error, FencedError):  # another broker continues it
                    self._release(entry.metadata.partition)
                self._on_error(entry.metadata.partition, error)
                waits.append(self._settings.interval_s)
        for partition in claimed - {entry.metadata.partition for entry in entries}:
            self._release(partition)  # another broker has finished it
        await self._metadata.forget_deleted_partitions()
        self._recorder.task_succeeded("remove")
        return min((wait for wait in waits if wait is not None), default=None)

    async def _mark_asked(self) -> float | None:
        """Mark the deleted partitions of this broker, and those whose owner has not begun within ``TAKEOVER_S``."""
        waits: list[float] = []
        for partition, since_s in list(self._asked.items()):
            try:
                view = await read_partition(self._store, self._metadata.keys, partition)
                is_settled = view.row is None or view.row.is_tombstone or view.delete_state is not None
                left_s = since_s + TAKEOVER_S - self._clock.monotonic_s()
                if not is_settled and view.claim is not None and view.claim.broker_id != self._broker_id and left_s > 0:
                    waits.append(left_s)
                    continue
                if not is_settled:
                    await self.accept(partition)
            except TierError as error:
                self._on_error(partition, error)
                waits.append(self._settings.interval_s)
                continue
            del self._asked[partition]
        return min(waits, default=None)

    async def _go_on(self, entry: PartitionBeingDeleted) -> float | None:
        """Continue one deletion as far as possible now; return seconds until there is more to do."""
        event, partition = entry.metadata, entry.metadata.partition
        is_ours = event.broker_id == self._broker_id
        left_s = TAKEOVER_S + self._settings.grace_s - (self._clock.now_ms() - event.event_timestamp_ms) / 1000
        if not is_ours and left_s > 0:
            if partition in self._claimed:
                self._release(partition)
            return left_s
        self._claimed.add(partition)
        await self._claim(partition, entry.leader_epoch, is_ours=is_ours)
        if event.state is _MARKED or (event.state is _STARTED and not is_ours):
            await self._put(partition, _STARTED)
        wait_s = None if event.state is _FINISHED else await self._contents.remove(partition)
        if wait_s is None:
            await self._put(partition, _FINISHED)
            self._release(partition)
            log.info("partition_deleted", partition=str(partition))
        return wait_s

    def _release(self, partition: TopicIdPartition) -> None:
        """Forget a partition that is deleted, or that another broker deletes."""
        self._metadata.stop(partition)
        self._contents.forget(partition)
        self._claimed.discard(partition)
        if not self._metadata.has_topic(partition.topic):
            self._recorder.forget_topic(partition.topic)

    async def _claim(self, partition: TopicIdPartition, leader_epoch: int, *, is_ours: bool) -> None:
        """Claim the partition. A deleted partition has no leader: a broker that takes it over claims the next epoch."""
        await self._metadata.become_leader(partition, leader_epoch if is_ours else leader_epoch + 1)
        await self._metadata.ensure_ready(partition)

    async def _put(self, partition: TopicIdPartition, state: RemotePartitionDeleteState) -> None:
        await self._metadata.put_partition_delete(
            RemotePartitionDeleteMetadata(
                partition=partition,
                state=state,
                event_timestamp_ms=self._clock.now_ms(),
                broker_id=self._broker_id,
            )
        )


def _log_failure(partition: TopicIdPartition, error: TierError) -> None:
    log.warning("partition_not_deleted", partition=str(partition), problem=str(error), remedy=error.remedy)
