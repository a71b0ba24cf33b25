"""PartitionRemover: takes the tier of whole partitions away, and goes on with it after restarts (remote-tiering 13).

::

    asked ─► MARKED ─► STARTED ─► every row DELETE_STARTED ─► …the grace… ─► objects go ─► FINISHED: rows are erased
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import FencedError, RemoteObjectRetainedError, RemoteResourceNotFoundError, TierError
from tierd.metadata import (
    KeyValueStore,
    PartitionBeingDeleted,
    RemoteLogMetadataManager,
    partitions_being_deleted,
    read_partition,
)
from tierd.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.deletion import RETAINED_RETRY_S, SegmentDeletion
from tierd.tiering.removing.expiration_plan import DeleteReason
from tierd.tiering.removing.log_start_keeper import LogStartKeeper
from tierd.tiering.removing.sweep import UploadSweep
from tierd.tiering.removing.workers import in_order

log = structlog.get_logger()

TAKEOVER_S: Final = (
    3600.0  # the broker that began a deletion, or led the partition, is given that long to go on with it
)
_MARKED: Final = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
_STARTED: Final = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
_FINISHED: Final = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_DETAIL: Final = "its whole partition is deleted"


class PartitionRemover:
    """Deletes partitions that it was asked for, and those that somebody began to delete. A ``PartitionTask``.

    One partition that fails stops no other; it is told of, and tried again.
    """

    def __init__(
        self,
        *,
        store: KeyValueStore,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        being_copied: Collection[UUID],
        slots: asyncio.Semaphore,
        log_starts: LogStartKeeper,
        recorder: TieringRecorder,
        clock: Clock,
        broker_id: int,
        grace_s: float,
        interval_s: float = 30.0,
        width: int = 4,
        on_error: Callable[[TopicIdPartition, TierError], None] | None = None,
        uploads: UploadSweep | None = None,
    ) -> None:
        """Begin nothing yet.

        Args:
            store: the one below ``metadata``.
            metadata: what is in the tier.
            deletion: deletes one segment.
            being_copied: ids of the copies under way in this process, live.
            slots: bounds the segments deleted at once, over all partitions.
            log_starts: removes the partition's log start from the bucket.
            recorder: is told of outcomes.
            clock: time.
            broker_id: this broker.
            grace_s: how long objects stay.
            interval_s: the wait after a failure.
            width: segments of one partition deleted at once.
            on_error: is told of each failure, by default the log is.
            uploads: discards what dead processes have left half uploaded; None where nobody does.
        """
        self._store = store
        self._metadata = metadata
        self._deletion = deletion
        self._being_copied = being_copied
        self._slots = slots
        self._log_starts = log_starts
        self._recorder = recorder
        self._clock = clock
        self._broker_id = broker_id
        self._grace_s = grace_s
        self._interval_s = interval_s
        self._width = width
        self._on_error = on_error or _log_failure
        self._uploads = uploads
        self._asked: dict[TopicIdPartition, float] = {}  # and since when, monotonic
        self._at_once: set[TopicIdPartition] = set()
        self._marked: dict[TopicIdPartition, set[UUID]] = {}  # whose tombstones are known to be there
        self._claimed: set[TopicIdPartition] = set()  # announced to the metadata by us, and by nobody else
        self._wake = asyncio.Event()

    @property
    def name(self) -> str:
        """There is one."""
        return "remove deleted partitions"

    @property
    def wake(self) -> asyncio.Event:
        """Set when somebody asks for a deletion."""
        return self._wake

    @property
    def progress(self) -> object:
        """Changes while a pass gets on."""
        return self._deletion.steps

    def delete_tier(self, partition: TopicIdPartition) -> None:
        """Have the tier of a partition that the cluster deleted removed, after the grace; ``run_once`` begins it.

        Whoever owns the partition in the metadata store does it; the others step in when nobody has begun in an hour.
        """
        self._asked.setdefault(partition, self._clock.monotonic_s())
        self._wake.set()

    async def accept(self, partition: TopicIdPartition, *, at_once: bool = False) -> None:
        """Mark the partition for deletion; from its return on, a deletion that a crash interrupts is gone on with.

        Args:
            partition: nobody copies it any more, or he is refused from now on.
            at_once: without a grace. Not remembered across a restart for what was not begun by then.

        Raises:
            RemoteResourceNotFoundError: the metadata has no such partition, or it is deleted already.
            FencedError: another broker has taken the partition meanwhile.
            TierError: it is not marked; ask again.
        """
        view = await read_partition(self._store, self._metadata.keys, partition)
        if view.row is None or view.row.is_tombstone:
            raise RemoteResourceNotFoundError(
                f"{partition} has nothing in the tier", remedy="tierd segments shows what a partition has"
            )
        if at_once:
            self._at_once.add(partition)
        if view.delete_state is None:
            claim = view.row.claim
            try:
                await self._claim(partition, claim.leader_epoch, is_ours=claim.broker_id == self._broker_id)
                await self._put(partition, _MARKED)
            except FencedError:
                self._let_go(partition)
                raise
            self._claimed.add(partition)
            log.info("partition_marked_for_deletion", partition=str(partition), segments=len(view.segments))
        self._wake.set()

    async def run_once(self) -> float | None:
        """Go on with every deletion that is ours to go on with; return seconds until there is more to do.

        Raises:
            MetadataError: the store cannot say what is being deleted.
        """
        waits = [await self._mark_asked()]
        claimed = frozenset(self._claimed)
        entries = await partitions_being_deleted(self._store, self._metadata.keys)
        for entry in entries:
            try:
                waits.append(await self._go_on(entry))
            except TierError as error:
                if isinstance(error, FencedError):  # somebody else goes on with it
                    self._let_go(entry.metadata.partition)
                self._on_error(entry.metadata.partition, error)
                waits.append(self._interval_s)
        for partition in claimed - {entry.metadata.partition for entry in entries}:
            self._let_go(partition)  # somebody else has come to the end of it
        await self._metadata.forget_deleted_partitions()
        self._recorder.task_succeeded("remove")
        return min((wait for wait in waits if wait is not None), default=None)

    async def _mark_asked(self) -> float | None:
        """Mark what is ours among what the cluster deleted; what another broker owns waits for him."""
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
                waits.append(self._interval_s)
                continue
            del self._asked[partition]
        return min(waits, default=None)

    async def _go_on(self, entry: PartitionBeingDeleted) -> float | None:
        """Take one deletion as far as it goes now."""
        event, partition = entry.metadata, entry.metadata.partition
        is_ours = event.broker_id == self._broker_id
        left_s = TAKEOVER_S + self._grace_s - (self._clock.now_ms() - event.event_timestamp_ms) / 1000
        if not is_ours and left_s > 0:
            if partition in self._claimed:
                self._let_go(partition)
            return left_s
        self._claimed.add(partition)
        await self._claim(partition, entry.leader_epoch, is_ours=is_ours)
        if event.state is _MARKED or (event.state is _STARTED and not is_ours):
            await self._put(partition, _STARTED)
        wait_s = None if event.state is _FINISHED else await self._remove_segments(partition)
        if wait_s is None:
            if self._uploads is not None and event.state is not _FINISHED:
                await self._uploads.discard_of(partition)  # nobody leads it: no other sweep would ever judge them
            if event.state is not _FINISHED and not await self._remove_log_start(partition):
                return RETAINED_RETRY_S
            await self._put(partition, _FINISHED)
            self._let_go(partition)
            log.info("partition_deleted", partition=str(partition))
        return wait_s

    async def _remove_log_start(self, partition: TopicIdPartition) -> bool:
        """Remove the log start record; return False where the store keeps it."""
        try:
            await self._log_starts.remove(partition)
        except RemoteObjectRetainedError as error:
            log.warning("log_start_retained", partition=str(partition), problem=str(error), remedy=error.remedy)
            return False
        return True

    def _let_go(self, partition: TopicIdPartition) -> None:
        """Forget a partition that is deleted, or that somebody else deletes."""
        self._metadata.stop(partition)
        self._deletion.forget(partition)
        self._claimed.discard(partition)
        self._at_once.discard(partition)
        self._marked.pop(partition, None)

    async def _remove_segments(self, partition: TopicIdPartition) -> float | None:
        """First all rows, then the objects; return seconds until more may go, None when nothing is left."""
        await in_order(self._rows(partition), self._begin, slots=self._slots, width=self._width)
        await in_order(self._rows(partition), self._finish, slots=self._slots, width=self._width)
        waits = [self._wait_s(row) for row in self._rows(partition)]
        return min(waits) if waits else None

    def _rows(self, partition: TopicIdPartition) -> Sequence[RemoteLogSegmentMetadata]:
        return sorted(self._metadata.view(partition).list(), key=lambda metadata: metadata.start_offset)

    async def _begin(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Begin the deletion of a readable segment; one that a crash left in its grace without a tombstone gets it."""
        marked = self._marked.setdefault(metadata.segment.topic_id_partition, set())
        is_readable = metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        in_grace = metadata.soft_delete is not None and self._wait_s(metadata) > 0
        if not is_readable and (not in_grace or metadata.segment.id in marked):
            return
        at_once = metadata.segment.topic_id_partition in self._at_once
        after_ms = self._clock.now_ms() + (0 if at_once else round(self._grace_s * 1000))
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
                if metadata.soft_delete is not None:
                    await self._deletion.finish(metadata)
                else:
                    await self._deletion.delete(metadata, reason=DeleteReason.TOPIC_DELETED, detail=_DETAIL)
            except RemoteObjectRetainedError:
                return  # noted; the partition stays STARTED until the store lets go

    def _wait_s(self, metadata: RemoteLogSegmentMetadata) -> float:
        """Seconds until the objects of the segment may go."""
        if retained_s := self._deletion.retained_for_s(metadata.segment):
            return min(retained_s, RETAINED_RETRY_S)
        if metadata.soft_delete is None or metadata.segment.topic_id_partition in self._at_once:
            return self._interval_s if metadata.segment.id in self._being_copied else 0.0
        return max(0.0, (metadata.soft_delete.delete_after_ms - self._clock.now_ms()) / 1000)

    async def _claim(self, partition: TopicIdPartition, leader_epoch: int, *, is_ours: bool) -> None:
        """Own the partition. Nobody leads what is deleted: whoever takes it from another broker is the next leader."""
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
