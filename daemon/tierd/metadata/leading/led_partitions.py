"""LedPartitions: the partitions that this broker leads or follows, each written by one operation at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import chain
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
from tierd.metadata.kv import CallLatency, DeadlineKeyValueStore, KeyValueStore, OnOutcome
from tierd.metadata.leading.led_partition import LedPartition
from tierd.metadata.leading.partition_store import PartitionStore
from tierd.metadata.rows import Claim, MetadataKeyFactory, TierEpochs, fenced
from tierd.metadata.stored import FollowedPartitions
from tierd.metadata.views import PartitionView, ViewChange
from tierd.model import TopicIdPartition
from tierd.tasks import result_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataStatistics:
    """Counts of the manager since it began, and its present state.

    Attributes:
        partitions: announced to be led and not stopped.
        ready_partitions: loaded, with nothing in doubt.
        dirty_partitions: to be reloaded before their next use.
        fenced_partitions: another leader or session owns them.
        followed_partitions: announced to be followed, and not stopped.
        segments: rows in memory, tombstones excepted.
        tombstones: deleted segments that are still remembered.
        claims: partition rows taken, reloads included.
        loads: partitions read from the store.
        reloads: of those, after an unknown outcome or an unexpected revision.
        follower_reads: reads of followed partitions.
        follower_loads: of those, reads that needed all rows of the partition.
        repairs: stored epoch states that did not fit the stored segments.
        fenced_writes: refused by the store, because another leader or session owns the partition.
        unknown_outcomes: batches that may or may not have been written.
        unexpected_revisions: preconditions that failed though the partition is ours: a bug, or a manual edit.
        invalid_transitions: steps that the lifecycle does not have.
        backend: calls of the store and their time, by operation: get, scan, apply.
    """

    partitions: int
    ready_partitions: int
    dirty_partitions: int
    fenced_partitions: int
    followed_partitions: int
    segments: int
    tombstones: int
    claims: int
    loads: int
    reloads: int
    follower_reads: int
    follower_loads: int
    repairs: int
    fenced_writes: int
    unknown_outcomes: int
    unexpected_revisions: int
    invalid_transitions: int
    backend: Mapping[str, CallLatency]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataManagerSettings:
    """Settings of the manager of a broker's metadata.

    Attributes:
        backend_timeout_s: longest wait for one call to the store.
        tombstone_retention_s: how long the row of a deleted segment is kept.
        load_concurrency: partitions that are read from the store at once.
        strict_kafka_compat: as in ``PartitionView``.
    """

    backend_timeout_s: float = 5.0
    tombstone_retention_s: float = 86_400
    load_concurrency: int = 8
    strict_kafka_compat: bool = False


_DEFAULTS: Final = MetadataManagerSettings()


class LedPartitions:
    """Partitions that this broker leads or follows. The writes of one partition run one after the other.

    The store belongs to the caller, which closes the store after this object.
    """

    def __init__(
        self,
        store: KeyValueStore,
        *,
        cluster_id: str,
        broker_id: int,
        session_id: UUID,
        clock: Clock,
        settings: MetadataManagerSettings = _DEFAULTS,
        on_outcome: OnOutcome = lambda _: None,
        new_keys: Callable[[str], MetadataKeyFactory] = MetadataKeyFactory,
    ) -> None:
        """Read nothing yet.

        Args:
            store: the key-value store of the metadata.
            cluster_id: the cluster of this broker.
            broker_id: this broker.
            session_id: this process; claims carry it.
            clock: time.
            settings: limits and compatibility.
            on_outcome: is called with the outcome of every call to the store.
            new_keys: makes the keys of a cluster's rows.
        """
        self.keys = new_keys(cluster_id)
        self.session_id = session_id
        self._store = DeadlineKeyValueStore(
            store, timeout_s=settings.backend_timeout_s, clock=clock, on_outcome=on_outcome
        )
        self._broker_id = broker_id
        self._clock = clock
        self._tombstone_retention_s = settings.tombstone_retention_s
        self._partitions = PartitionStore(
            self._store,
            self.keys,
            strict_kafka_compat=settings.strict_kafka_compat,
            load_concurrency=settings.load_concurrency,
        )
        self._followed = FollowedPartitions(
            self._store,
            self.keys,
            strict_kafka_compat=settings.strict_kafka_compat,
            load_concurrency=settings.load_concurrency,
        )
        self._led: dict[TopicIdPartition, LedPartition] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def rows(self) -> KeyValueStore:
        """Return the store for other callers: each call has a deadline, and ``on_outcome`` gets its outcome."""
        return self._store

    async def check_store(self) -> None:
        """Read one small row, to check that the store answers.

        Raises:
            MetadataError: the store does not answer, or not as it must.
        """
        await self._store.get(self.keys.store_key)

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

        async with led.lock:  # an earlier caller may have made it ready: copying and expiration ask alike
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

    def has_topic(self, topic: str) -> bool:
        """Return True if a partition of the topic is led or followed here."""
        return any(partition.topic == topic for partition in chain(self._led, self._followed))

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Return True if a led partition is loaded and not in doubt, or a followed one's last read was answered."""
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

        A follower's answer comes from one snapshot, taken after the call began; the view is empty when
        the store has nothing.

        Raises:
            RemoteResourceNotFoundError: the partition was not announced, was stopped, or was deleted.
            RemoteStorageNotReadyError: it is not loaded, or the store does not answer.
            MetadataDecodeError: a row that cannot be understood.
        """
        return self.view(partition) if partition in self._led else await self._followed.read(partition)

    async def read_epochs(self, partition: TopicIdPartition) -> TierEpochs:
        """Return how far the newest epochs are in the tier; for a followed partition its own row is usually enough.

        Raises:
            TierError: the same errors as ``read_view``.
        """
        return self.view(partition) if partition in self._led else await self._followed.read_epochs(partition)

    def statistics(self) -> MetadataStatistics:
        """Return the counts so far, and the present state."""
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
        """Run ``operation`` after the operations of earlier callers.

        A caller that is cancelled while it waits changes nothing. A caller that is cancelled later waits for the end of
        the operation, whose calls are bounded, so that a durable change is also visible. Then the cancellation goes on.
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
            await result_of(task)


def _not_leading(partition: TopicIdPartition) -> FencedError:
    return FencedError(f"{partition}: this broker does not lead it", remedy="nothing to do if leadership moved")


async def _abandonable(operation: Callable[[], Awaitable[None]]) -> None:
    try:
        await operation()
    except asyncio.CancelledError as error:  # ``close`` cancelled the operation; the caller is not cancelled
        raise OutcomeUnknownError("tierd stopped before the metadata store had answered") from error
