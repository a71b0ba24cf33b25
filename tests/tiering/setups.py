"""Small but complete tierd over memory stores and real log dirs. A test may replace each part."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import UUID, uuid4

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.config import CopySettings, ExpireSettings
from tierd.control import LeadershipSource, StaticLeadership
from tierd.log import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    Record,
    find_cut_end,
    identify_directory,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.metadata import KeyValueStore, MemoryKeyValueStore, MetadataKeyFactory, RemoteLogMetadataManager
from tierd.model import (
    IsolationLevel,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    TopicPartition,
)
from tierd.remote import ObjectKeyFactory, ObjectStore, SegmentStorage
from tierd.tiering import (
    AuditLimits,
    BrokerLogOffsets,
    Capacity,
    CopyOutcome,
    FetchTask,
    Finding,
    FollowedLogDirs,
    LogOffsets,
    PassiveSupervisor,
    SegmentHold,
    Slots,
    StoredTier,
    Supervisor,
    TierAudit,
    TieredLog,
    TieringContext,
    TieringSettings,
    TopicPolicy,
    Writer,
    assemble,
)
from tierd.tiering.topic_policy import FindTopicPolicy

CLUSTER_ID = "dGllcmQtc3ludGhldGljLQ"
BROKER_ID = 1

HoldModeName = Literal["auto", "link", "descriptor", "none"]


@dataclass
class Recorded:
    """TieringRecorder that keeps every outcome."""

    requests: int = 0
    copied: list[int] = field(default_factory=list)
    failures: int = 0
    gaps: list[int] = field(default_factory=list)
    copy_throttles_ms: list[int] = field(default_factory=list)
    fetches: int = 0
    fetched_bytes: int = 0
    fetch_failures: int = 0
    throttles_ms: list[int] = field(default_factory=list)
    deletes: int = 0
    delete_failures: int = 0
    swept: int = 0
    aborted: int = 0
    computed: int = 0
    succeeded: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def copy_requested(self, topic: str) -> None:
        self.requests += 1

    def segment_copied(self, topic: str, *, size_bytes: int, seconds: float) -> None:
        self.copied.append(size_bytes)

    def copy_failed(self, topic: str) -> None:
        self.failures += 1

    def copy_throttled(self, throttle_ms: int) -> None:
        self.copy_throttles_ms.append(throttle_ms)

    def gap_found(self, topic: str, *, offsets: int) -> None:
        self.gaps.append(offsets)

    def fetch_requested(self, topic: str) -> None:
        self.fetches += 1

    def bytes_fetched(self, topic: str, size_bytes: int) -> None:
        self.fetched_bytes += size_bytes

    def fetch_failed(self, topic: str) -> None:
        self.fetch_failures += 1

    def fetch_throttled(self, throttle_ms: int) -> None:
        self.throttles_ms.append(throttle_ms)

    def delete_requested(self, topic: str) -> None:
        self.deletes += 1

    def delete_failed(self, topic: str) -> None:
        self.delete_failures += 1

    def dangling_swept(self, topic: str) -> None:
        self.swept += 1

    def uploads_aborted(self, count: int) -> None:
        self.aborted += count

    def remote_size_computed(self, seconds: float) -> None:
        self.computed += 1

    def task_succeeded(self, task: str) -> None:
        self.succeeded.append(task)

    def forget_topic(self, topic: str) -> None:
        self.forgotten.append(topic)


class Tier:
    """Both stores, which survive, and the sessions of tierd over them, which do not."""

    def __init__(
        self,
        tmp_path: Path,
        log_dirs: Collection[Path],
        *,
        store: ObjectStore | None = None,
        rows: KeyValueStore | None = None,
    ) -> None:
        self.log_dirs = list(log_dirs)
        self.hold_dir = tmp_path / "hold"
        self.clock = FakeClock()
        self.store: ObjectStore = store or MemoryObjectStore()
        self.rows: KeyValueStore = rows or MemoryKeyValueStore()

    def session(
        self,
        *,
        supervisor: Supervisor | None = None,
        settings: CopySettings | None = None,
        hold_mode: HoldModeName = "auto",
        hold_max_bytes: int | None = None,
        leadership: LeadershipSource | None = None,
        storage: Callable[[SegmentStorage], SegmentStorage] | None = None,
        wants: Callable[[str], bool] = lambda topic: not topic.startswith("__"),
        policies: FindTopicPolicy = lambda _: TopicPolicy(),
        expire: ExpireSettings | None = None,
        broker_id: int = BROKER_ID,
        log_offsets: LogOffsets | None = None,
        slots: Slots | None = None,
    ) -> "Session":
        """Return a process of tierd with a session id, caches and holds of its own."""
        return Session(
            self,
            supervisor=supervisor or PassiveSupervisor(),
            settings=settings or CopySettings(),
            hold=SegmentHold(mode=hold_mode, hold_dir=self.hold_dir, max_bytes=hold_max_bytes),
            leadership=leadership or StaticLeadership(),
            storage=storage or (lambda plain: plain),
            wants=wants,
            policies=policies,
            expire=expire,
            broker_id=broker_id,
            log_offsets=log_offsets,
            slots=slots,
        )


class Session:
    """Process of tierd."""

    def __init__(
        self,
        tier: Tier,
        *,
        supervisor: Supervisor,
        settings: CopySettings,
        hold: SegmentHold,
        leadership: LeadershipSource,
        storage: Callable[[SegmentStorage], SegmentStorage],
        wants: Callable[[str], bool],
        policies: FindTopicPolicy,
        expire: ExpireSettings | None,
        broker_id: int,
        log_offsets: LogOffsets | None,
        slots: Slots | None,
    ) -> None:
        self.tier = tier
        self.hold = hold
        self.recorder = Recorded()
        self.session_id = uuid4()
        self.storage = storage(SegmentStorage(tier.store, cluster_id=CLUSTER_ID, broker_id=broker_id))
        self.metadata = RemoteLogMetadataManager(
            tier.rows, cluster_id=CLUSTER_ID, broker_id=broker_id, session_id=self.session_id, clock=tier.clock
        )
        expire = expire or ExpireSettings()
        self.tiering = assemble(
            TieringContext(
                metadata=self.metadata,
                remote=self.storage,
                policies=policies,
                log_offsets=log_offsets or BrokerLogOffsets(),
                recorder=self.recorder,
                clock=tier.clock,
                writer=Writer(broker_id=broker_id, session_id=self.session_id),
                settings=TieringSettings(copying=settings, expire=expire),
            ),
            FollowedLogDirs(paths=tier.log_dirs, hold=hold, wants=wants),
            leadership=leadership,
            supervisor=supervisor,
            capacity=Capacity(
                settings,
                copies=slots or Slots(settings.concurrency),
                deletions=Slots(expire.concurrency),
                recorder=self.recorder,
                clock=tier.clock,
            ),
            rows=tier.rows,
            ledger=None,
            random=lambda: 0.5,
        )
        self.manager = self.tiering.manager

    async def copy_once(self, *names: str) -> dict[str, CopyOutcome]:
        """Run one pass over all partitions, or over those with the names; return the outcomes by name."""
        chosen = [TopicPartition.parse(name) for name in names] or None
        return {str(outcome.partition): outcome for outcome in await self.manager.copy_once(chosen)}

    def rows(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        """Return every row, ascending."""
        return sorted(self.metadata.view(partition).list(), key=lambda m: (m.start_offset, m.event_timestamp_ms))

    def finished(self, partition: TopicIdPartition) -> list[tuple[int, int]]:
        """Return the offsets of the readable segments, ascending, inclusive."""
        state = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        return [(m.start_offset, m.end_offset) for m in self.rows(partition) if m.state is state]

    async def tiered_log(self, path: Path, *, topic_id: UUID | None = None) -> TieredLog:
        """Return both tiers of the partition in ``path`` as a reader sees them."""
        directory = identify_directory(path)
        assert directory is not None
        name = directory.topic_partition
        high_watermark = read_offset_checkpoint(path.parent / REPLICATION_OFFSET_CHECKPOINT).get(name)
        scan = scan_partition(directory)
        return TieredLog(
            directory.partition,
            self.metadata.view(directory.partition),
            scan,
            high_watermark,
            read_offset_checkpoint(path.parent / LOG_START_OFFSET_CHECKPOINT).get(name),
            cut_at=find_cut_end(scan, high_watermark=high_watermark or 0),
        )

    async def findings(self, path: Path) -> list[Finding]:
        """Return the findings of a deep audit of the partition in ``path``; an unfinished copy counts as dangling."""

        async def nothing() -> tuple[()]:
            return ()

        audit = TierAudit(
            StoredTier(
                objects=self.tier.store,
                segments=self.storage,
                object_keys=ObjectKeyFactory("", CLUSTER_ID),
                rows=self.tier.rows,
                row_keys=MetadataKeyFactory(CLUSTER_ID),
            ),
            tiered_log=lambda _: self.tiered_log(path),
            clock=self.tier.clock,
            limits=AuditLimits(0, attempt_timeout_s=0),
            retained=nothing,
        )
        return [finding async for report in audit.run([partition_of(path)], deep=True) for finding in report.findings]

    def reader(self, path: Path, *, prefetch_bytes: int = 1 << 20) -> FetchTask:
        """Return a reader of the partition in ``path``."""
        return FetchTask(
            lambda: self.tiered_log(path),
            remote=self.storage,
            recorder=self.recorder,
            prefetch_bytes=prefetch_bytes,
        )

    async def read_all(self, path: Path, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> list[Record]:
        """Return every record from the log start to the end."""
        return [record async for record in self.reader(path).records(None, None, isolation)]


def partition_of(path: Path) -> TopicIdPartition:
    """Return the identity of the replica in ``path``."""
    directory = identify_directory(path)
    assert directory is not None
    return directory.partition


def delete_segment(path: Path, base_offset: int) -> None:
    """Remove the files of a segment and its snapshot, as retention of the broker does."""
    for file in path.glob(f"{base_offset:020d}.*"):
        file.unlink()
