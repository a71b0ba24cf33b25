"""Tier as daemons fill it: segments through ``SegmentStorage``, metadata through its manager; ids count up."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import FaultyKeyValueStore
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.metadata import (
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    PartitionView,
    RemoteLogMetadataManager,
    read_partition,
    remember_tier,
    store_identity,
)
from tierd.model import (
    EpochEntry,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    TopicIdPartition,
)
from tierd.remote import ObjectKeyFactory, ObjectStore, SegmentStorage, Tombstone, claim_tier
from tierd.testing import checksums_of
from tierd.tiering import MetadataRebuild, RebuildReport, StoredTier

CLUSTER_ID, PREFIX = "cluster", "tiers/a"
KEYS = MetadataKeyFactory(CLUSTER_ID)
OBJECT_KEYS = ObjectKeyFactory(PREFIX, CLUSTER_ID)
STORE_ID = UUID(int=42)
PARTITION = TopicIdPartition(UUID(int=7), "orders", 0)
NEW_SESSION = UUID(int=0xABC)
CONTENT = b"records" * 10


def storage_of(store: ObjectStore) -> SegmentStorage:
    return SegmentStorage(store, cluster_id=CLUSTER_ID, broker_id=1, key_prefix=PREFIX)


class FilledTier:
    """Tier with one leader at a time, one partition after the other."""

    def __init__(self, folder: Path, store: ObjectStore | None = None) -> None:
        self.store = store or MemoryObjectStore()
        self.storage = storage_of(self.store)
        self.metadata: KeyValueStore = MemoryKeyValueStore()
        self.clock = FakeClock()
        self.manager = self._manager(1)
        self.leader_epoch = 5
        self._log = folder / "segment.log"
        self._log.write_bytes(CONTENT)
        self._copies = 0

    def _manager(self, session: int) -> RemoteLogMetadataManager:
        return RemoteLogMetadataManager(
            self.metadata, cluster_id=CLUSTER_ID, broker_id=1, session_id=UUID(int=session), clock=self.clock
        )

    async def claim(self) -> None:
        await store_identity(self.metadata, KEYS, new_id=lambda: STORE_ID)
        await remember_tier(self.metadata, KEYS, key_prefix=PREFIX)
        await claim_tier(self.store, key_prefix=PREFIX, cluster_id=CLUSTER_ID, store_id=STORE_ID)

    async def lead(self, partition: TopicIdPartition = PARTITION, *, later: int = 0) -> None:
        self.leader_epoch += later
        await self.manager.become_leader(partition, self.leader_epoch)

    async def copy(
        self,
        start: int,
        end: int,
        epochs: dict[int, int] | int = 0,
        *,
        partition: TopicIdPartition = PARTITION,
        through: str = "finished",
        storage: SegmentStorage | None = None,
    ) -> RemoteLogSegmentMetadata:
        """Copy a segment; ``through`` is the last step of the copy: started, manifest or finished."""
        self._copies += 1
        self.clock.advance(1)
        starts = {epochs: start} if isinstance(epochs, int) else epochs
        metadata = RemoteLogSegmentMetadata(
            segment=RemoteLogSegmentId(partition, UUID(int=self._copies)),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=end,
            broker_id=1,
            event_timestamp_ms=self.clock.now_ms(),
            size_bytes=len(CONTENT),
            segment_leader_epochs=tuple(EpochEntry(*entry) for entry in starts.items()),
            leader_epoch=self.leader_epoch,
            session_id=self.manager.session_id,
            txn_index_empty=self._copies % 2 == 0,
        )
        objects = storage or self.storage
        metadata = replace(metadata, custom_metadata=objects.custom_metadata(metadata))
        await self.manager.add(metadata)
        if through == "started":
            return metadata
        await objects.copy_log_segment_data(metadata, self.data())
        if through == "finished":
            await self.step(metadata, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        return metadata

    async def give_up(self, metadata: RemoteLogSegmentMetadata, *, gone: bool = False) -> None:
        """Delete as the expiration does: the tombstone and the row; then, after the grace, objects and row."""
        now_ms = self.clock.now_ms()
        await self.step(
            metadata,
            RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
            soft_delete=SoftDelete("retention-time", now_ms + 9_000),
        )
        await self.storage.write_tombstone(metadata, Tombstone("retention-time", now_ms, now_ms + 9_000, 1))
        if gone:
            await self.storage.delete_log_segment_data(metadata)
            await self.step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

    async def step(
        self,
        metadata: RemoteLogSegmentMetadata,
        state: RemoteLogSegmentState,
        *,
        soft_delete: SoftDelete | None = None,
    ) -> None:
        advanced = metadata.advance(state, event_timestamp_ms=self.clock.now_ms(), broker_id=1, soft_delete=soft_delete)
        await self.manager.update(advanced)

    def data(self) -> LogSegmentData:
        return LogSegmentData(
            log=self._log,
            log_checksums=checksums_of(CONTENT),
            batch_count=1,
            record_count=10,
            offset_index=b"offset index",
            time_index=b"time index",
            transaction_index=None,
            producer_snapshot=b"producer snapshot",
            leader_epoch_index=b"0\n1\n0 0\n",
        )


def rebuild_of(
    objects: ObjectStore,
    metadata: KeyValueStore,
    *,
    dry_run: bool = False,
    storage: SegmentStorage | None = None,
    accepts_unauthenticated: bool = False,
    grace_ends_ms: int = 5_000,
) -> MetadataRebuild:
    return MetadataRebuild(
        StoredTier(
            objects=objects,
            segments=storage or storage_of(objects),
            object_keys=OBJECT_KEYS,
            rows=metadata,
            row_keys=KEYS,
        ),
        session_id=NEW_SESSION,
        grace_ends_ms=grace_ends_ms,
        on_progress=lambda _: None,
        accepts_unauthenticated=accepts_unauthenticated,
        dry_run=dry_run,
    )


async def rebuilt(objects: ObjectStore, metadata: KeyValueStore | None = None) -> tuple[RebuildReport, KeyValueStore]:
    store = FaultyKeyValueStore(MemoryKeyValueStore()) if metadata is None else metadata
    return await rebuild_of(objects, store).run(), store


async def view_in(store: KeyValueStore, partition: TopicIdPartition = PARTITION) -> PartitionView:
    return await read_partition(store, KEYS, partition)
