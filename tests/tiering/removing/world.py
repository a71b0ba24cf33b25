"""Tier of one partition over memory stores, and processes of tierd that remove from it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import PARTITION
from tests.tiering.removing.rows import NOW_MS, SIZE
from tests.tiering.setups import Recorded
from tierd.clock import Clock
from tierd.errors import RemoteStorageError
from tierd.metadata import KeyValueStore, MemoryKeyValueStore, PartitionView, RemoteLogMetadataManager
from tierd.model import (
    EpochEntry,
    Lineage,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    uuid_to_text,
)
from tierd.remote import ObjectStore, SegmentStorage
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.expiring.branch_segments import LocalSegment
from tierd.tiering.removing.expiring.expiration_task import ExpirationTask, ExpirationTools
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts
from tierd.tiering.removing.ledger import DeletionLedger, Ledger, LedgerEntry, read_ledger
from tierd.tiering.removing.log_start_keeper import LogStartKeeper
from tierd.tiering.removing.monotonic_guard import MonotonicGuard
from tierd.tiering.removing.sweep import DanglingSweep, SweepSettings
from tierd.tiering.topic_policy import TopicPolicy

CLUSTER_ID = "dGllcmQtc3ludGhldGljLQ"
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
SWEEP_GRACE_S = 600.0
SWEEP_SETTINGS = SweepSettings(grace_s=SWEEP_GRACE_S, limit=16, retry_s=30)


@dataclass
class FakeLog:
    """LocalLogView with scripted facts, which records each new log start."""

    partition: TopicIdPartition = PARTITION
    lineage: Lineage = field(default_factory=lambda: Lineage.of([(0, 0)]))
    log_end_offset: int = 1_000_000
    high_watermark: int | None = 1_000_000
    segments: tuple[LocalSegment, ...] = ()
    starts: list[int] = field(default_factory=list)

    async def facts(self, *, sizes: bool) -> LocalFacts:
        return LocalFacts(self.lineage, self.log_end_offset, self.high_watermark, self.segments)

    async def raise_log_start(self, offset: int) -> None:
        self.starts.append(offset)


class WatchedStorage(SegmentStorage):
    """Storage that reports each deletion of objects before it happens, and may refuse it."""

    def __init__(self, store: ObjectStore, broker_id: int) -> None:
        super().__init__(store, cluster_id=CLUSTER_ID, broker_id=broker_id)
        self.deleted: list[UUID] = []
        self.refuses = False
        self.on_delete: Callable[[RemoteLogSegmentMetadata], None] = lambda _: None

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.on_delete(metadata)
        if self.refuses:
            raise RemoteStorageError("refused")
        self.deleted.append(metadata.segment.id)
        await super().delete_log_segment_data(metadata)


class World:
    """Both stores and the ledger, which survive processes."""

    def __init__(self, tmp_path: Path, *, partition: TopicIdPartition = PARTITION) -> None:
        self.state_dir = tmp_path
        self.partition = partition
        self.clock = FakeClock(now_ms=NOW_MS)
        self.objects = MemoryObjectStore(clock=self.clock)
        self.rows = MemoryKeyValueStore()
        self.log = FakeLog(partition)
        self.policy = TopicPolicy()
        self.grace_s = 0.0

    def process(
        self,
        *,
        objects: ObjectStore | None = None,
        rows: KeyValueStore | None = None,
        ledger: Ledger | None = None,
        width: int = 1,
        broker_id: int = 1,
        believes_leaps: bool = True,
    ) -> "Process":
        process = Process(self, objects or self.objects, rows or self.rows, ledger, width=width, broker_id=broker_id)
        if not believes_leaps:
            process.clock = MonotonicGuard(self.clock)
        return process

    def ledger_lines(self) -> list[LedgerEntry]:
        return list(read_ledger(self.state_dir))

    def steps(self) -> list[tuple[str, int]]:
        """Return the steps in the ledger with the start offset of each segment."""
        return [(entry.step, entry.start_offset) for entry in self.ledger_lines()]


class Process:
    """Process with a session and all parts that remove."""

    def __init__(
        self,
        world: World,
        objects: ObjectStore,
        rows: KeyValueStore,
        ledger: Ledger | None,
        *,
        width: int,
        broker_id: int,
    ) -> None:
        self.world = world
        self.width = width
        self.broker_id = broker_id
        self.clock: Clock = world.clock
        self.kv = rows
        self.recorder = Recorded()
        self.session_id = uuid4()
        self.being_copied: set[UUID] = set()
        self.storage = WatchedStorage(objects, broker_id)
        self.ledger = DeletionLedger(world.state_dir) if ledger is None else ledger
        self.metadata = RemoteLogMetadataManager(
            rows, cluster_id=CLUSTER_ID, broker_id=broker_id, session_id=self.session_id, clock=world.clock
        )
        self.deletion = SegmentDeletion(
            metadata=self.metadata,
            remote=self.storage,
            recorder=self.recorder,
            clock=world.clock,
            broker_id=broker_id,
            ledger=self.ledger,
        )
        self.log_starts = LogStartKeeper(
            metadata=self.metadata, storage=self.storage.log_starts, clock=world.clock, broker_id=broker_id
        )

    @property
    def view(self) -> PartitionView:
        return self.metadata.view(self.world.partition)

    def tools(self) -> ExpirationTools:
        return ExpirationTools(
            metadata=self.metadata,
            deletion=self.deletion,
            policies=lambda _: self.world.policy,
            being_copied=self.being_copied,
            log_starts=self.log_starts,
            slots=asyncio.Semaphore(self.width),
            recorder=self.recorder,
            clock=self.clock,
            width=self.width,
            grace_s=self.world.grace_s,
        )

    def sweep(self) -> DanglingSweep:
        return DanglingSweep(
            self.world.partition,
            metadata=self.metadata,
            deletion=self.deletion,
            being_copied=self.being_copied,
            recorder=self.recorder,
            clock=self.world.clock,
            settings=SWEEP_SETTINGS,
        )

    def task(self, *, leader_epoch: int = 0, with_sweep: bool = False) -> ExpirationTask:
        sweep = self.sweep() if with_sweep else None
        return ExpirationTask(self.world.log, leader_epoch=leader_epoch, tools=self.tools(), sweep=sweep)

    async def lead(self, leader_epoch: int = 0) -> None:
        await self.metadata.become_leader(self.world.partition, leader_epoch)

    async def add(
        self,
        start: int,
        end: int,
        epochs: dict[int, int] | int = 0,
        *,
        state: RemoteLogSegmentState = FINISHED,
        age_ms: int = 0,
        size_bytes: int = SIZE,
        leader_epoch: int = 0,
        has_manifest: bool = True,
    ) -> RemoteLogSegmentMetadata:
        """Add a segment with its objects, and bring it into ``state``."""
        starts = {epochs: start} if isinstance(epochs, int) else epochs
        now_ms = self.world.clock.now_ms()
        metadata = RemoteLogSegmentMetadata(
            segment=RemoteLogSegmentId(self.world.partition, uuid4()),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=now_ms - age_ms,
            broker_id=self.broker_id,
            event_timestamp_ms=now_ms,
            size_bytes=size_bytes,
            segment_leader_epochs=tuple(EpochEntry(*pair) for pair in starts.items()),
            leader_epoch=leader_epoch,
            session_id=self.session_id,
        )
        await self.metadata.add(metadata)
        for suffix in (".log", ".indexes", *([".manifest"] if has_manifest else [])):
            await self.world.objects.put(self.key(metadata, suffix), suffix.encode())
        for step in {FINISHED: [FINISHED], DELETING: [DELETING]}.get(state, []):
            update = metadata.advance(step, event_timestamp_ms=now_ms, broker_id=self.broker_id)
            await self.metadata.update(update)
            metadata = metadata.updated(update)
        return metadata

    async def fill(self, count: int, *, age_ms: int = 0) -> list[RemoteLogSegmentMetadata]:
        """Add ``count`` finished segments of a hundred offsets each."""
        return [await self.add(n * 100, n * 100 + 99, age_ms=age_ms) for n in range(count)]

    def key(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
        partition = self.world.partition
        name = f"{metadata.start_offset:020d}-{uuid_to_text(metadata.segment.id)}{suffix}"
        return f"{CLUSTER_ID}/{partition.topic}-{uuid_to_text(partition.topic_id)}/{partition.partition}/{name}"

    async def suffixes(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """Return the suffixes of the existing objects of the segment."""
        found = (await self.storage.list_segment_objects(self.world.partition)).get(metadata.segment.id, [])
        return sorted(Path(item.key).suffix for item in found)

    def states(self) -> dict[int, RemoteLogSegmentState]:
        """Return the state of every row by start offset."""
        return {m.start_offset: m.state for m in self.view.list()}

    def starts(self, state: RemoteLogSegmentState) -> list[int]:
        return sorted(m.start_offset for m in self.view.list() if m.state is state)


__all__ = ["DELETING", "FINISHED", "STARTED", "SWEEP_GRACE_S", "FakeLog", "Process", "World"]


@contextlib.contextmanager
def deletions_of(process: Process) -> Iterator[Sequence[RemoteLogSegmentMetadata]]:
    """Collect the segments whose objects are deleted while the block lasts."""
    seen: list[RemoteLogSegmentMetadata] = []
    process.storage.on_delete = seen.append
    yield seen
    process.storage.on_delete = lambda _: None
