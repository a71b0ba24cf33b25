"""Small tier of two segments, and its audits and repairs; each access is that of a process of its own."""

from collections.abc import Collection, Mapping
from pathlib import Path
from uuid import UUID, uuid4

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Recorded, Session, Tier, partition_of
from tierd.log import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    identify_directory,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.metadata import (
    Batch,
    Delete,
    KeyValueStore,
    MetadataKeyFactory,
    Put,
    RemoteLogMetadataManager,
    read_partition,
)
from tierd.metadata.rows.serde import encode_segment
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, uuid_to_text
from tierd.remote import ObjectInfo, ObjectKeyFactory, ObjectStore, SegmentStorage, Transform
from tierd.remote.transform.transform import PLAIN
from tierd.tiering import (
    AuditLimits,
    BucketReader,
    DeletionLedger,
    Finding,
    LedgerEntry,
    OrphanInspector,
    RemoteLogCopy,
    RepairOutcome,
    RepairPlanner,
    RepairTools,
    SegmentCheck,
    SegmentCopy,
    SegmentDeletion,
    SegmentWrites,
    StoredTier,
    TierAudit,
    TieredLog,
    TierRepair,
    Writer,
    read_ledger,
)
from tierd.tiering.auditing.side_by_side import AuditReport

KEYS = MetadataKeyFactory(CLUSTER_ID)
OBJECT_KEYS = ObjectKeyFactory("", CLUSTER_ID)
GRACE_S = 600.0
MIN_AGE_S = 3600.0


class Audited:
    """Partition 0 of ``topic`` with rolled segments of 8 records each, not copied yet."""

    def __init__(
        self,
        tmp_path: Path,
        transform: Transform = PLAIN,
        *,
        topic: str = "orders",
        rolled_segments: int = 2,
        store: type[MemoryObjectStore] = MemoryObjectStore,
    ) -> None:
        log_dir = LogDirWriter(tmp_path / "kafka")
        writer = log_dir.add_partition(topic)
        writer.fill(rolled_segments=rolled_segments, shape=SegmentShape())
        log_dir.write_checkpoints()
        self.folder = tmp_path
        self.path = writer.path
        self.tier = Tier(tmp_path, [log_dir.path])
        self.tier.store = store(clock=self.tier.clock)
        self.transform = transform if transform.encrypts else Transform(level=transform.level)  # a tier without a ring
        self.session: Session = self.tier.session(storage=self._transforming)

    @property
    def partition(self) -> TopicIdPartition:
        return partition_of(self.path)

    def storage(self, store: ObjectStore | None = None) -> SegmentStorage:
        return SegmentStorage(
            store or self.tier.store,
            cluster_id=CLUSTER_ID,
            broker_id=BROKER_ID,
            chunk_size=1 << 20,
            transform=self.transform,
        )

    def _transforming(self, _: SegmentStorage) -> SegmentStorage:
        return self.storage()

    # ------------------------------------------------------------ state of the tier

    async def objects(self, suffix: str) -> list[ObjectInfo]:
        return [info for info in await self.tier.store.list_objects("") if info.key.endswith(suffix)]

    async def rows(self) -> list[RemoteLogSegmentMetadata]:
        view = await read_partition(self.tier.rows, KEYS, self.partition)
        return sorted(view.list(), key=lambda m: (m.start_offset, m.state))

    async def tiered_log(self, partition: TopicIdPartition) -> TieredLog:
        view = await read_partition(self.tier.rows, KEYS, partition)
        if partition != self.partition or not self.path.exists():
            return TieredLog(partition, view, None, None)
        directory = identify_directory(self.path)
        assert directory is not None
        name = partition.topic_partition
        return TieredLog(
            partition,
            view,
            scan_partition(directory),
            read_offset_checkpoint(self.path.parent / REPLICATION_OFFSET_CHECKPOINT).get(name),
            read_offset_checkpoint(self.path.parent / LOG_START_OFFSET_CHECKPOINT).get(name),
        )

    def ledger_lines(self) -> list[LedgerEntry]:
        return list(read_ledger(self.folder))

    # ------------------------------------------------------------ damage

    async def overwrite(self, key: str, content: bytes) -> None:
        await self.tier.store.delete(key)
        await self.tier.store.put(key, content)

    async def spoil(self, suffix: str) -> None:
        """Change the last byte of the first segment's object, whatever it is: encrypted content is random."""
        first = (await self.objects(suffix))[0]
        content = await self.tier.store.get(first.key)
        await self.overwrite(first.key, content[:-1] + bytes([content[-1] ^ 0x55]))

    async def lose(self, *suffixes: str) -> None:
        """Delete objects of the first segment."""
        for suffix in suffixes:
            await self.tier.store.delete((await self.objects(suffix))[0].key)

    def lose_local(self, *base_offsets: int) -> None:
        """Delete local segments, as retention does."""
        for base_offset in base_offsets:
            for file in self.path.glob(f"{base_offset:020d}.*"):
                file.unlink()

    async def replace_row(self, row: RemoteLogSegmentMetadata) -> None:
        """Put a row into the metadata in the place of the one with its id."""
        key = KEYS.segment(self.partition, row.segment.id)
        await self.tier.rows.apply(Batch([Put(key, encode_segment(row, None))]))

    async def forget_rows(self, *base_offsets: int) -> None:
        """Take the rows of segments out of the metadata, as an old backup of it would: their objects are orphans."""
        prefix = KEYS.partition_prefix(self.partition)
        ids = {m.segment.id for m in await self.rows() if m.start_offset in base_offsets}
        texts = [uuid_to_text(each) for each in ids]
        doomed = [
            Delete(key)
            for key, value in await self.tier.rows.scan(prefix)
            if any(text in key or text.encode() in value for text in texts)
        ]
        await self.tier.rows.apply(Batch(doomed))

    # ------------------------------------------------------------ audit and repair

    def stored(self, store: ObjectStore) -> StoredTier:
        """Return the tier over ``store``."""
        return StoredTier(
            objects=store,
            segments=self.storage(store),
            object_keys=OBJECT_KEYS,
            rows=self.tier.rows,
            row_keys=KEYS,
        )

    def audit(
        self, store: ObjectStore | None = None, *, grace_s: float = GRACE_S, retained: UUID | None = None
    ) -> TierAudit:
        async def noted() -> set[UUID]:
            return {retained} if retained else set()

        store = store or self.tier.store
        return TierAudit(
            self.stored(store),
            tiered_log=self.tiered_log,
            clock=self.tier.clock,
            limits=AuditLimits(grace_s),
            retained=noted,
        )

    async def reports(
        self,
        *,
        deep: bool = False,
        grace_s: float = GRACE_S,
        store: ObjectStore | None = None,
        retained: UUID | None = None,
        only: Collection[TopicIdPartition] | None = None,
    ) -> list[AuditReport]:
        audit = self.audit(store, grace_s=grace_s, retained=retained)
        return [report async for report in audit.run(only, deep=deep)]

    async def findings(self, *, deep: bool = False, grace_s: float = GRACE_S) -> list[Finding]:
        return [finding for report in await self.reports(deep=deep, grace_s=grace_s) for finding in report.findings]

    async def kinds(self, *, deep: bool = False) -> list[str]:
        return [finding.kind for finding in await self.findings(deep=deep)]

    def repair(
        self,
        *,
        led: Mapping[TopicIdPartition, int] | None = None,
        store: ObjectStore | None = None,
        rows: KeyValueStore | None = None,
        min_age_s: float = MIN_AGE_S,
        accepts_unauthenticated: bool = False,
    ) -> TierRepair:
        """Return a process that repairs."""
        led = {self.partition: 0} if led is None else led
        store, clock = store or self.tier.store, self.tier.clock
        storage, session_id = self.storage(store), uuid4()
        metadata = RemoteLogMetadataManager(
            rows or self.tier.rows, cluster_id=CLUSTER_ID, broker_id=BROKER_ID, session_id=session_id, clock=clock
        )
        ledger = DeletionLedger(self.folder)
        deletion = SegmentDeletion(
            metadata=metadata, remote=storage, recorder=Recorded(), clock=clock, broker_id=BROKER_ID, ledger=ledger
        )
        audit = self.audit(store)

        async def nothing() -> None:
            pass

        async def noted() -> set[UUID]:
            return set()

        planner = RepairPlanner(
            audit=audit,
            orphans=OrphanInspector(
                check=SegmentCheck(
                    store, storage, cluster_id=CLUSTER_ID, clock=clock, limits=AuditLimits(GRACE_S), retained=noted
                ),
                bucket=BucketReader(store, storage, OBJECT_KEYS, accepts_unauthenticated=accepts_unauthenticated),
                segments=storage,
                tiered_log=self.tiered_log,
                clock=clock,
            ),
            tier=self.stored(store),
            tiered_log=self.tiered_log,
            led=led,
            hold_dir=self.tier.hold_dir,
            clock=clock,
            min_age_s=min_age_s,
        )
        tools = RepairTools(
            metadata=metadata,
            copies=SegmentCopy(
                metadata=metadata,
                remote=storage,
                deletion=deletion,
                recorder=Recorded(),
                clock=clock,
                writer=Writer(broker_id=BROKER_ID, session_id=session_id),
                writes=SegmentWrites(),
                attempt_timeout_s=900,
            ),
            deletion=deletion,
            remote_log=RemoteLogCopy(store, storage, OBJECT_KEYS),
            store=store,
            storage=storage,
            rows=self.tier.rows,
            metadata_keys=KEYS,
            tiered_log=self.tiered_log,
            led=led,
            ledger=ledger,
            clock=clock,
            broker_id=BROKER_ID,
            session_id=session_id,
            scratch=self.folder / "repair",
            grace_s=GRACE_S,
            own=nothing,
            write_identity=nothing,
        )
        return TierRepair(planner, tools)

    async def results(
        self, repair: TierRepair | None = None, *, deep: bool = False, is_confirmed: bool = True
    ) -> list[tuple[str, str]]:
        """Run a repair; return each action with its result."""
        outcomes = await self.outcomes(repair, deep=deep, is_confirmed=is_confirmed)
        return [(outcome.action.kind.value, outcome.result.value) for outcome in outcomes]

    async def outcomes(
        self, repair: TierRepair | None = None, *, deep: bool = False, is_confirmed: bool = True
    ) -> list[RepairOutcome]:
        running = (repair or self.repair()).run(deep=deep, is_confirmed=is_confirmed)
        return [outcome async for outcome in running]

    async def records(self) -> list[int]:
        """Return the offsets of all records that a reader gets."""
        session = self.tier.session(storage=self._transforming)
        await session.metadata.become_leader(self.partition, 0)
        return [record.offset for record in await session.read_all(self.path)]
