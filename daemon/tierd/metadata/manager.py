"""RemoteLogMetadataManager: the leader's metadata, first durable, then visible (remote-tiering 5 to 7)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from tierd.clock import Clock
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    InvalidSegmentTransitionError,
    OutcomeUnknownError,
    RemoteResourceNotFoundError,
    RemoteStorageNotReadyError,
)
from tierd.metadata.cache import PartitionView, ViewChange
from tierd.metadata.followed import FollowedPartitions
from tierd.metadata.keys import MetadataKeyFactory
from tierd.metadata.kv.base import KeyValueStore
from tierd.metadata.kv.deadline import DeadlineKeyValueStore
from tierd.metadata.led_partition import LedPartition
from tierd.metadata.partition_deletes import forget_deleted_partitions
from tierd.metadata.partition_store import PartitionStore
from tierd.metadata.row import Claim, fenced
from tierd.metadata.statistics import MetadataStatistics
from tierd.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)

_TOMBSTONES_DROPPED_PER_BATCH: Final = 64
_ROWS_ERASED_PER_BATCH: Final = 500  # what every product takes in one batch, and a fraction of its deadline


class RemoteLogMetadataManager:
    """Holds the view of every partition that this broker leads and writes each change through to a store.

    Partitions that it follows are read from the store, which belongs to the caller, who closes it after the manager.
    """

    def __init__(
        self,
        store: KeyValueStore,
        *,
        cluster_id: str,
        broker_id: int,
        session_id: UUID,
        clock: Clock,
        backend_timeout_s: float = 5.0,
        tombstone_retention_s: float = 86_400,
        load_concurrency: int = 8,
        strict_kafka_compat: bool = False,
    ) -> None:
        self.keys = MetadataKeyFactory(cluster_id)
        self.session_id = session_id
        self._store = DeadlineKeyValueStore(store, timeout_s=backend_timeout_s, clock=clock)
        self._broker_id = broker_id
        self._clock = clock
        self._tombstone_retention_s = tombstone_retention_s
        self._partitions = PartitionStore(
            self._store, self.keys, strict_kafka_compat=strict_kafka_compat, load_concurrency=load_concurrency
        )
        self._followed = FollowedPartitions(
            self._store, self.keys, strict_kafka_compat=strict_kafka_compat, load_concurrency=load_concurrency
        )
        self._led: dict[TopicIdPartition, LedPartition] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    async def become_leader(self, partition: TopicIdPartition, leader_epoch: int) -> None:
        """Claim the partition, then load it; a repeated announcement does nothing.

        A failure leaves the partition announced and not ready; announce it again, or call ``ensure_ready``.

        Raises:
            FencedError: another leader epoch, broker or session owns the partition, or the announcement is out of date.
            BackendUnavailableError: the store did not answer.
            OutcomeUnknownError: the claim may or may not have been written; repeat it.
            MetadataDecodeError: a row that cannot be understood.
        """
        self._followed.stop(partition)
        claim = Claim(leader_epoch, self._broker_id, self.session_id)
        led = self._led.setdefault(partition, LedPartition(partition, claim))

        async def take() -> None:
            if leader_epoch < led.claim.leader_epoch:
                raise fenced(partition, claim, led.claim)
            if leader_epoch > led.claim.leader_epoch:
                led.reclaim_as(claim)
            led.fenced = None  # an announcement asks the store again
            await self._partitions.make_ready(led)

        async with led.lock:  # whoever asked before may have made it ready: copying and expiration ask alike
            if self._led.get(partition) is led and led.claim == claim and led.is_ready():
                return
        await self._exclusively(led, take)

    def follow(self, partition: TopicIdPartition) -> None:
        """Follow the partition: writes are refused from now on, and ``read_view`` asks the store."""
        self._led.pop(partition, None)
        self._followed.follow(partition)

    def stop(self, partition: TopicIdPartition) -> None:
        """Forget the partition: it is gone from this host. Touches nothing in the store."""
        self._led.pop(partition, None)
        self._followed.stop(partition)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether a led partition is loaded, with nothing in doubt, or the store answered last for a followed one."""
        led = self._led.get(partition)
        return self._followed.is_ready(partition) if led is None else led.is_ready()

    async def ensure_ready(self, partition: TopicIdPartition) -> None:
        """Load the partition again when its outcome is unknown or it was never loaded; otherwise do nothing.

        Raises:
            FencedError: this broker does not lead the partition, or not any more.
            BackendUnavailableError: the store did not answer.
            OutcomeUnknownError: the renewed claim may or may not have been written; repeat it.
            MetadataDecodeError: a row that cannot be understood.
        """
        led = self._leading(partition)
        if not led.is_ready():
            await self._write(led, ViewChange)

    def view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the present view, which never changes; ask again for the next one.

        Raises:
            RemoteResourceNotFoundError: the partition was never announced to be led, was stopped, or was deleted.
            RemoteStorageNotReadyError: it is not loaded, or must be loaded again.
        """
        led = self._led.get(partition)
        if led is None:
            raise RemoteResourceNotFoundError(f"{partition}: this broker does not lead it")
        if led.view is None or not led.is_ready():
            why = led.fenced or led.dirty or "it is being loaded"
            raise RemoteStorageNotReadyError(f"{partition}: its metadata is not ready: {why}")
        led.view.require_not_deleted()
        return led.view

    async def read_view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the live view of a partition that this broker leads, or what the store has of one that it follows.

        A follower's answer comes from one snapshot, taken after the call began. It is empty when the store has nothing.

        Raises:
            RemoteResourceNotFoundError: the partition was not announced, was stopped, or was deleted.
            RemoteStorageNotReadyError: it is not loaded, or the store does not answer.
            MetadataDecodeError: a row that cannot be understood.
        """
        return self.view(partition) if partition in self._led else await self._followed.read(partition)

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
        await self._begin(metadata, PartitionView.with_added)

    async def adopt(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Record a segment as finished whose objects are there and in nobody's metadata, in one step.

        The caller has made sure that every object is there and sound. ``metadata`` is COPY_SEGMENT_STARTED, under the
        claim of this session. Repeating the same request succeeds.

        Raises:
            As ``add``.
        """
        await self._begin(metadata, PartitionView.with_adopted)

    async def _begin(
        self,
        metadata: RemoteLogSegmentMetadata,
        begin: Callable[[PartitionView, RemoteLogSegmentMetadata], ViewChange],
    ) -> None:
        led = self._leading(metadata.segment.topic_id_partition)

        def added(view: PartitionView) -> ViewChange:
            change = begin(view, metadata)
            if not change.is_empty() and (metadata.leader_epoch, metadata.session_id) != (
                led.claim.leader_epoch,
                led.claim.session_id,
            ):
                writer = Claim(metadata.leader_epoch, metadata.broker_id, metadata.session_id)
                raise fenced(led.partition, writer, led.claim)
            return change

        await self._write(led, added)

    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Take a step in a segment's life; returns when that is durable and visible. Repeating a step succeeds.

        Raises:
            InvalidMetadataError: COPY_SEGMENT_STARTED, which only ``add`` may set.
            RemoteResourceNotFoundError: nobody added the segment.
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

    async def undelete(self, update: RemoteLogSegmentMetadataUpdate, *, log_start_offset: int | None = None) -> None:
        """Take back a segment whose deletion has begun, to COPY_SEGMENT_FINISHED; returns when durable and visible.

        The caller has made sure that every object is there. Repeating it succeeds.

        Args:
            update: the step.
            log_start_offset: where the log begins from then on, if that is below its present start.

        Raises:
            As ``update``.
        """
        led = self._leading(update.segment.topic_id_partition)
        await self._write(led, lambda view: view.with_undeleted(update, log_start_offset=log_start_offset))

    async def put_partition_delete(self, metadata: RemotePartitionDeleteMetadata) -> None:
        """Take a step in the deletion of a partition that this broker leads; returns when that is durable and visible.

        Segments stay listed until the last step, DELETE_PARTITION_FINISHED, which needs them gone. It erases what is
        stored of the partition, in batches of bounded size, and leaves its row as a tombstone. A call that failed or
        was cancelled there may have erased a part: put the same step again. Repeating a step succeeds.

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
        """Remove the tombstones of partitions that were deleted longer ago than the retention; say how many.

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

    async def prove_leadership(self, partition: TopicIdPartition) -> None:
        """Write the partition's row anew, which nobody but its owner can: before what no store would fence.

        Raises:
            FencedError: the partition is not ours.
            BackendUnavailableError: nothing was written.
            OutcomeUnknownError: it may or may not have been written; the same request may be repeated.
        """
        await self._write(self._leading(partition), lambda view: ViewChange(view, row_changed=True))

    def statistics(self) -> MetadataStatistics:
        """What happened so far, and what is held now."""
        led, counts = self._led.values(), self._partitions.counts
        views = [*(entry.view for entry in led if entry.view is not None), *self._followed.views()]
        return MetadataStatistics(
            partitions=len(led),
            ready_partitions=sum(entry.is_ready() for entry in led),
            dirty_partitions=sum(entry.dirty is not None for entry in led),
            fenced_partitions=sum(entry.fenced is not None for entry in led),
            followed_partitions=len(self._followed),
            follower_reads=self._followed.reads,
            follower_loads=self._followed.loads,
            segments=sum(len(view.segments) for view in views),
            tombstones=sum(len(view.tombstones) for view in views),
            claims=counts["claims"],
            loads=counts["loads"],
            reloads=counts["reloads"],
            repairs=counts["repairs"],
            fenced_writes=counts["fenced_writes"],
            unknown_outcomes=counts["unknown_outcomes"],
            unexpected_revisions=counts["unexpected_revisions"],
            invalid_transitions=counts["invalid_transitions"],
            backend=self._store.latencies(),
        )

    async def close(self, *, limit_s: float = 5.0) -> None:
        """Refuse new calls, let running ones end within ``limit_s``, then abandon them with OutcomeUnknownError.

        Closing twice is harmless. The store stays open.
        """
        self._closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=limit_s)
        for task in self._running:
            task.cancel()
        while self._running:
            await asyncio.wait(self._running)

    def _leading(self, partition: TopicIdPartition) -> LedPartition:
        led = self._led.get(partition)
        if led is None:
            raise _not_leading(partition)
        return led

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

    async def _write(self, led: LedPartition, change_of: Callable[[PartitionView], ViewChange]) -> None:
        async def commit() -> None:
            view = await self._partitions.make_ready(led)
            try:
                change = change_of(view)
            except InvalidSegmentTransitionError:
                self._partitions.counts["invalid_transitions"] += 1
                raise
            if not change.is_empty():
                await self._partitions.commit(led, change)

        await self._exclusively(led, commit)

    async def _exclusively(self, led: LedPartition, operation: Callable[[], Awaitable[None]]) -> None:
        """Run ``operation`` after those that asked before.

        A caller that is cancelled while it waits leaves nothing. Cancelled later, it still waits for the operation,
        whose calls are bounded, so that what is durable is also visible; then the cancellation goes on.
        """
        async with led.lock:
            if self._closed:
                raise BackendUnavailableError(
                    "the metadata manager is closed", remedy="nothing to do: tierd is stopping"
                )
            if self._led.get(led.partition) is not led:
                raise _not_leading(led.partition)
            task = asyncio.create_task(_abandonable(operation), name=f"metadata of {led.partition}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            await _finished(task)


def _not_leading(partition: TopicIdPartition) -> FencedError:
    return FencedError(f"{partition}: this broker does not lead it", remedy="nothing to do if leadership moved")


async def _abandonable(operation: Callable[[], Awaitable[None]]) -> None:
    try:
        await operation()
    except asyncio.CancelledError as error:  # close() ran out of patience; the caller is not cancelled
        raise OutcomeUnknownError("tierd stopped before the metadata store had answered") from error


async def _finished(task: asyncio.Task[None]) -> None:
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()  # looked at: the cancellation says enough
        raise asyncio.CancelledError
    task.result()
