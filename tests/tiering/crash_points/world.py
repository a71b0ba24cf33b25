"""State that survives a process: log dirs, bucket, state dir and metadata; and processes of tierd over it."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from tests.fakes.clock import FakeClock
from tests.fakes.log_dirs import LogDirWriter
from tests.tiering.crash_points.points import MarkedLedger, Points
from tests.tiering.interruption import InterruptedKeyValueStore, InterruptedObjectStore
from tests.tiering.setups import Recorded, partition_of
from tierd.config import CopySettings, ExpireSettings
from tierd.control import StaticLeadership
from tierd.metadata import (
    Batch,
    Delete,
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    MetadataManagerSettings,
    Put,
    RemoteLogMetadataManager,
    remember_tier,
    store_identity,
)
from tierd.metadata.kv import PostgresKeyValueStore, RedisKeyValueStore, SqliteKeyValueStore
from tierd.model import LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.remote import ObjectStore, SegmentStorage, claim_tier
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.tiering import (
    BrokerLogOffsets,
    Capacity,
    DeletionLedger,
    FollowedLogDirs,
    PassiveSupervisor,
    SegmentHold,
    Slots,
    TieringContext,
    TieringSettings,
    TopicPolicy,
    Writer,
    assemble,
)
from tierd.tiering.removing.ledger import Ledger
from tierd.tiering.removing.sweep import UploadSweep

CLUSTER_ID = "dGllcmQtc3ludGhldGljLQ"
DAY_MS = 86_400_000
GRACE_S = 3600.0
SEGMENTS = 3  # rolled segments, of which the first two are old
RECORDS_PER_SEGMENT = 4
TOPIC_ID = UUID(int=0xC0FFEE)
_FOREVER_S = 7 * 86_400.0  # tombstones are checked in the end
_NOW_MS = time.time_ns() // 1_000_000  # unfinished uploads have the age of their files

MEMORY = "memory"
SUCCESSORS = {"restart": 1, "takeover": 2}
"""Who goes on after a death, and as which broker."""
RAM = next((path for path in ("/dev/shm",) if os.access(path, os.W_OK)), None)
"""Where worlds lie, None for the usual place: a process that dies loses nothing that it has written, synced or not."""


@dataclass
class World:
    """Directory with all state that survives. Broker 1 led; broker 2 has the same log under a higher epoch."""

    root: Path
    address: str
    """Of the metadata: ``memory``, a path, or the URL of a server."""
    policy: TopicPolicy = field(default_factory=TopicPolicy)
    now_ms: int = _NOW_MS
    memory: MemoryKeyValueStore = field(default_factory=MemoryKeyValueStore)

    @property
    def is_remote(self) -> bool:
        """Return True if the metadata are on a server, which outlives the processes."""
        return self.address.startswith(("postgres", "redis"))

    @property
    def bucket(self) -> Path:
        return self.root / "bucket"

    def log_dir(self, broker_id: int) -> Path:
        return self.root / f"kafka-{broker_id}"

    def state_dir(self, broker_id: int) -> Path:
        return self.root / f"state-{broker_id}"

    def path(self, broker_id: int) -> Path:
        """Return the directory of the partition."""
        return self.log_dir(broker_id) / "orders-0"

    @property
    def partition(self) -> TopicIdPartition:
        return partition_of(self.path(1))

    @asynccontextmanager
    async def metadata(self) -> AsyncIterator[KeyValueStore]:
        """Open the metadata store again."""
        store = await self._open()
        try:
            yield store
        finally:
            if store is not self.memory:
                await store.close()

    async def _open(self) -> KeyValueStore:
        if self.address == MEMORY:
            return self.memory
        if self.address.startswith("postgres"):
            return await PostgresKeyValueStore.open(self.address, schema_name="tierd", pool_size=2)
        if self.address.startswith("redis"):
            return await RedisKeyValueStore.open(self.address, pool_size=2)
        return await SqliteKeyValueStore.open(self.root / self.address)

    async def rows(self) -> dict[str, bytes]:
        """Return all rows of the metadata store."""
        async with self.metadata() as store:
            return dict(await store.scan(""))

    async def fill(self, rows: dict[str, bytes]) -> None:
        """Replace the content of the metadata store by these rows."""
        async with self.metadata() as store:
            present = await store.scan("")
            erase = [Delete(key) for key, _ in present if key not in rows]
            await store.apply(Batch([*erase, *(Put(key, value) for key, value in rows.items())]))

    def copy_to(self, root: Path, address: str) -> "World":
        """Copy the files to another place; the caller fills the metadata."""
        shutil.copytree(self.root, root, ignore=shutil.ignore_patterns("metadata.db*"))
        return World(root, address, policy=self.policy, now_ms=self.now_ms)


async def _claim(world: World) -> None:
    async with world.metadata() as store:
        keys = MetadataKeyFactory(CLUSTER_ID)
        store_id = await store_identity(store, keys, new_id=uuid4)
        await remember_tier(store, keys, key_prefix="")
        objects = FilesystemObjectStore(world.bucket)
        await claim_tier(objects, key_prefix="", cluster_id=CLUSTER_ID, store_id=store_id)


def new_world(root: Path) -> World:
    """Make a log of three rolled segments, the first two of them old, and an empty tier."""
    world = World(root, MEMORY)
    writer = LogDirWriter(world.log_dir(1))
    partition = writer.add_partition("orders", topic_id=TOPIC_ID)
    for number in range(SEGMENTS + 1):
        age_ms = 10 * DAY_MS if number < SEGMENTS - 1 else 0
        for _ in range(2):
            values = [f"{number} {partition.end_offset + n}".encode() for n in range(RECORDS_PER_SEGMENT // 2)]
            partition.append(values, timestamp_ms=_NOW_MS - age_ms)
        if number < SEGMENTS:
            partition.roll()
    writer.write_checkpoints()
    shutil.copytree(world.log_dir(1), world.log_dir(2))
    epochs = world.path(2) / "leader-epoch-checkpoint"
    epochs.write_text(f"0\n2\n0 0\n1 {partition.end_offset}\n")
    for broker_id in (1, 2):
        world.state_dir(broker_id).mkdir()
    asyncio.run(_claim(world))
    return world


class OrderedStorage(SegmentStorage):
    """Storage that requires one upload after the other, ascending: invariant I3."""

    _last_start = -1
    _is_copying = False

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes:
        assert not self._is_copying, "two uploads of one partition at once"
        assert metadata.start_offset > self._last_start, "an upload out of order"
        self._is_copying, self._last_start = True, metadata.start_offset
        custom_metadata = await super().copy_log_segment_data(metadata, data)
        self._is_copying = False
        return custom_metadata


class Process:
    """Process of tierd with its own session, caches, holds and ledger; only its files and rows survive it."""

    def __init__(self, world: World, store: KeyValueStore, *, broker_id: int = 1, points: Points | None = None) -> None:
        """Start the process; ``points`` are its possible deaths."""
        self.world = world
        self.broker_id = broker_id
        self.clock = FakeClock(now_ms=world.now_ms)
        self.recorder = Recorded()
        objects: ObjectStore = FilesystemObjectStore(world.bucket)
        self.objects = objects
        ledger: Ledger = DeletionLedger(world.state_dir(broker_id))
        if points is not None:
            store = InterruptedKeyValueStore(store, points)
            objects = InterruptedObjectStore(objects, points)
            ledger = MarkedLedger(ledger, points)
        self.store = store
        session_id = uuid4()
        self.storage = OrderedStorage(objects, cluster_id=CLUSTER_ID, broker_id=broker_id)
        self.metadata = RemoteLogMetadataManager(
            store,
            cluster_id=CLUSTER_ID,
            broker_id=broker_id,
            session_id=session_id,
            clock=self.clock,
            settings=MetadataManagerSettings(tombstone_retention_s=_FOREVER_S),
        )
        self.hold = SegmentHold(mode="link", hold_dir=world.state_dir(broker_id) / "hold", max_bytes=None)
        settings = TieringSettings(copying=CopySettings(), expire=ExpireSettings(grace_s=GRACE_S))
        self.sweep_settings = settings.sweep
        self.tiering = assemble(
            TieringContext(
                metadata=self.metadata,
                remote=self.storage,
                policies=lambda _: world.policy,
                log_offsets=BrokerLogOffsets(),
                recorder=self.recorder,
                clock=self.clock,
                writer=Writer(broker_id=broker_id, session_id=session_id),
                settings=settings,
            ),
            FollowedLogDirs(paths=[world.log_dir(broker_id)], hold=self.hold, wants=lambda _: True),
            leadership=StaticLeadership(),
            supervisor=PassiveSupervisor(),
            capacity=Capacity(
                settings.copying,
                copies=Slots(settings.copying.concurrency),
                deletions=Slots(settings.expire.concurrency),
                recorder=self.recorder,
                clock=self.clock,
            ),
            rows=store,
            ledger=ledger,
            random=lambda: 0.5,
        )
        self.manager = self.tiering.manager

    async def close(self) -> None:
        """Close descriptors in an orderly way, and set the clock of the world to that of this process."""
        self.world.now_ms = self.clock.now_ms()
        self.hold.close()
        await self.metadata.close()
        await self.objects.close()

    async def copy(self) -> None:
        """Run one pass over all partitions that this broker leads."""
        for outcome in await self.manager.copy_once():
            if outcome.error is not None:
                raise outcome.error

    async def expire(self) -> None:
        """Run one pass of expiration."""
        for outcome in await self.tiering.removals.expire_here(None):
            if outcome.error is not None:
                raise outcome.error

    async def sweep_uploads(self) -> int:
        """Abort the unfinished uploads of dead processes."""
        sweep = UploadSweep(
            storage=self.storage,
            metadata=self.metadata,
            being_copied=(),
            recorder=self.recorder,
            clock=self.clock,
            settings=self.sweep_settings,
        )
        return await sweep.run_once([self.world.partition])
