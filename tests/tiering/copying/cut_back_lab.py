"""CutBackLab: a log that a killed broker cuts back within one leader epoch, and the tier that was filled from it."""

from pathlib import Path

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, Tier, partition_of
from tierd.errors import RetriableRemoteStorageError
from tierd.log import iter_batches
from tierd.model import ByteRange, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.remote import SegmentStorage
from tierd.tiering import CopyOutcome
from tierd.tiering.copy_plan import CopiedThrough
from tierd.tiering.local.log_offsets import BrokerLogOffsets
from tierd.tiering.removing.ledger import DeleteReason
from tierd.tiering.topic_policy import TopicPolicy

_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
SEGMENT_RECORDS = 6
BATCH_RECORDS = 2


class CountingStorage(SegmentStorage):
    """Storage that counts fetches and can be unreachable."""

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self.fetches = 0
        self.is_away = False

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        self.fetches += 1
        if self.is_away:
            raise RetriableRemoteStorageError("the store is away", remedy="wait")
        return await super().fetch_log_segment(metadata, byte_range)


class ReportedLogOffsets(BrokerLogOffsets):
    """Log offsets that record the copied offsets reported to the log; retention of the log deletes up to them."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[CopiedThrough] = []

    async def copied_through(self, log_dir: Path, partition: TopicIdPartition, copied: CopiedThrough) -> None:
        self.told.append(copied)


class CutBackLab:
    """Log of a broker that can be cut back, the records of a consumer of it, and a tier that is filled from it."""

    def __init__(
        self, folder: Path, *, leader: "CutBackLab | None" = None, broker_id: int = BROKER_ID, epoch: int = 0
    ) -> None:
        """Begin an empty log; with ``leader`` it is another replica of its partition, over the same tier."""
        topic_id = leader.partition.topic_id if leader else None
        self.log_dir = LogDirWriter(folder / "kafka", node_id=broker_id)
        self.other_log_dir = LogDirWriter(folder / "kafka-2", node_id=broker_id)
        self.writer: PartitionWriter = self.log_dir.add_partition("orders", topic_id=topic_id, leader_epoch=epoch)
        self.path = self.writer.path
        self.partition: TopicIdPartition = partition_of(self.path)
        self.broker_id = broker_id
        self.tier: Tier = Tier(
            folder,
            [self.log_dir.path, self.other_log_dir.path],
            store=leader.tier.store if leader else None,
            rows=leader.tier.rows if leader else None,
        )
        self.storage = CountingStorage(self.tier)
        self.told = ReportedLogOffsets()
        self.session = self.start()
        self.values: list[bytes] = []
        self._written = 0

    def start(self, policy: TopicPolicy | None = None) -> Session:
        self.session = self.tier.session(
            storage=lambda _: self.storage,
            broker_id=self.broker_id,
            log_offsets=self.told,
            policies=lambda _: policy or TopicPolicy(),
        )
        return self.session

    def produce(self, batches: int) -> None:
        for _ in range(batches):
            values = [b"value %d" % (self._written + n) for n in range(BATCH_RECORDS)]
            self._written += BATCH_RECORDS
            self.writer.append(values)
            self.values += values

    def produce_others(self, batches: int) -> None:
        """Append batches of the usual size with records that no other log has at these offsets."""
        for _ in range(batches):
            values = [b"other %d" % (self._written + n) for n in range(BATCH_RECORDS)]
            self._written += BATCH_RECORDS
            self.writer.append(values)
            self.values += values

    def segments(self, count: int) -> None:
        for _ in range(count):
            self.produce(SEGMENT_RECORDS // BATCH_RECORDS)
            self.writer.roll()
        self.log_dir.write_checkpoints()

    def lose_from(self, offset: int, *, is_told: bool = True) -> None:
        self.writer.cut_back(offset)
        del self.values[offset:]
        if is_told:
            self.log_dir.write_checkpoints()

    def cut_back_and_grow_the_same_above(self, offset: int, same_from: int) -> None:
        """Lose the records from ``offset`` on; append others, and from ``same_from`` on the same ones."""
        end, same = self._written, self.values[same_from:]
        self.lose_from(offset)
        self._written = offset
        self.produce_others((same_from - offset) // BATCH_RECORDS)
        self.writer.roll()
        self.segments((end - same_from) // SEGMENT_RECORDS)
        assert self.values[same_from:] == same

    async def run(self) -> CopyOutcome:
        return (await self.session.copy_once())["orders-0"]

    async def take_away(self, start_offset: int) -> None:
        """Begin to delete one segment from the tier."""
        (metadata,) = (m for m in self.session.rows(self.partition) if m.start_offset == start_offset)
        deletion = self.session.tiering.deletion
        await deletion.begin(metadata, reason=DeleteReason.DAMAGED, detail="", delete_after_ms=1 << 50)

    @property
    def finished(self) -> list[tuple[int, int]]:
        return self.session.finished(self.partition)

    @property
    def ended(self) -> list[tuple[int, int]]:
        rows = self.session.rows(self.partition)
        return [(m.start_offset, m.end_offset) for m in rows if m.state is _DELETING]

    async def read(self) -> list[bytes | None]:
        return [record.value for record in await self.session.read_all(self.path)]

    async def read_tier_only(self, end: int) -> list[bytes | None]:
        """Return the records of the tier up to ``end``, without the local log, where every segment is whole."""
        view, found = self.session.metadata.view(self.partition), []
        for start, last in self.finished:
            metadata = next(view.segment_for(epoch, start) for epoch in (0, 1) if view.segment_for(epoch, start))
            assert metadata is not None
            data = await SegmentStorage.fetch_log_segment(self.storage, metadata, ByteRange(0, metadata.size_bytes - 1))
            records = [r for b in iter_batches(data, name="tier") for r in b.records()]
            assert [r.offset for r in records] == list(range(start, last + 1))
            found += [r.value for r in records if r.offset < end]
        return found
