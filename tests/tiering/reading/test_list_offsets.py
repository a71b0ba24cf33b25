"""Offsets by timestamp and by name, over both tiers (Kafka: RemoteLogManagerTest, ListOffsetsIntegrationTest)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, delete_segment, partition_of
from tests.tiering.setups import Tier as Stores
from tierd.errors import MissingArtefactError
from tierd.log import DirectoryKind, PartitionDirectory, identify_directory, scan_partition
from tierd.model import (
    IndexType,
    IsolationLevel,
    Lineage,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TimestampOffset,
    TopicIdPartition,
    TopicPartition,
)
from tierd.remote import SegmentStorage
from tierd.tiering import FetchTask, OffsetSpec, TieredLog, TopicPolicy
from tierd.tiering.reading.offset_places import place
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.expiring.expiration_task import ExpirationTask, ExpirationTools
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts
from tierd.tiering.removing.log_start_keeper import LogStartKeeper

T = 1_700_000_000_000


class CountingStorage(SegmentStorage):
    """SegmentStorage that records read and deleted segments."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self.indexes: list[IndexType] = []
        self.deleted: list[int] = []

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        self.indexes.append(index_type)
        return await super().fetch_index(metadata, index_type)

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.deleted.append(metadata.start_offset)
        await super().delete_log_segment_data(metadata)


class Partition:
    """Partition that a broker wrote and tierd copies."""

    def __init__(self, tmp_path: Path, *, first_offset: int = 0, leader_epoch: int = 0) -> None:
        self.log_dir = LogDirWriter(tmp_path / "kafka")
        name = TopicPartition("orders", 0)
        self.writer = PartitionWriter(
            self.log_dir.path, name, topic_id=uuid4(), leader_epoch=leader_epoch, first_offset=first_offset
        )
        self.log_dir.partitions[name] = self.writer
        self.stores = Stores(tmp_path, [self.log_dir.path])
        self.storage = CountingStorage(self.stores)
        self.session: Session = self.stores.session(storage=lambda _: self.storage)

    @property
    def path(self) -> Path:
        return self.writer.path

    def append(self, *timestamps_ms: int) -> None:
        for timestamp_ms in timestamps_ms:
            self.writer.append([b"value"], timestamp_ms=timestamp_ms)

    async def copy(self, *deleted_locally: int) -> None:
        self.log_dir.write_checkpoints()
        assert [o.error for o in (await self.session.copy_once()).values()] == [None]
        for base in deleted_locally:
            delete_segment(self.path, base)

    def task(self) -> FetchTask:
        return self.session.reader(self.path)

    async def find(self, timestamp_ms: int) -> TimestampOffset | None:
        return await self.task().list_offset(timestamp_ms)

    async def offsets(self, timestamps_ms: Sequence[int]) -> list[int]:
        found = [await self.find(timestamp_ms) for timestamp_ms in timestamps_ms]
        return [-1 if each is None else each.offset for each in found]


@pytest.fixture
async def vector(tmp_path: Path) -> Partition:
    """Return the records (120, T-1) (121, T+1) (122, T+2) in a remote segment of epoch 10; local ones are older."""
    partition = Partition(tmp_path, first_offset=120, leader_epoch=10)
    partition.append(T - 1, T + 1, T + 2)
    partition.writer.roll()
    partition.append(T - 5)
    await partition.copy(120)
    return partition


class TestBetweenRecords:
    @pytest.mark.spec("remote-tiering 210")
    async def test_first_record_at_or_after_the_timestamp_is_found_in_the_tier(self, vector: Partition) -> None:
        assert await vector.find(T) == TimestampOffset(T + 1, 121, 10)
        assert await vector.find(T + 2) == TimestampOffset(T + 2, 122, 10)
        assert await vector.find(T + 3) is None

    @pytest.mark.spec("remote-tiering 211")
    async def test_a_segment_of_another_branch_is_not_searched(self, vector: Partition) -> None:
        log = await vector.session.tiered_log(vector.path)
        assert log.scan is not None
        other = replace(log.scan, lineage=Lineage.of([(9, 100), (11, 110)]))

        async def snapshot() -> TieredLog:
            return TieredLog(log.partition, log.view, other, log.high_watermark)

        task = FetchTask(snapshot, remote=vector.storage, recorder=vector.session.recorder, prefetch_bytes=0)
        vector.storage.indexes.clear()
        assert await task.list_offset(T) is None
        assert vector.storage.indexes == []

    @pytest.mark.spec("remote-tiering 212")
    async def test_a_segment_that_is_not_finished_is_not_searched(self, vector: Partition) -> None:
        log = await vector.session.tiered_log(vector.path)
        started = {
            segment_id: replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
            for segment_id, metadata in log.view.segments.items()
        }

        async def snapshot() -> TieredLog:
            return TieredLog(log.partition, replace(log.view, segments=started), log.scan, log.high_watermark)

        task = FetchTask(snapshot, remote=vector.storage, recorder=vector.session.recorder, prefetch_bytes=0)
        vector.storage.indexes.clear()
        assert await task.list_offset(T) is None
        assert vector.storage.indexes == []

    @pytest.mark.spec("remote-tiering 213")
    async def test_segment_in_both_tiers_is_searched_locally(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path, first_offset=120, leader_epoch=10)
        partition.append(T - 1, T + 1, T + 2)
        partition.writer.roll()
        partition.append(T + 9)
        await partition.copy()
        assert await partition.find(T) == TimestampOffset(T + 1, 121, 10)
        assert partition.storage.indexes == []

    async def test_record_behind_the_high_watermark_is_not_found(self, vector: Partition) -> None:
        vector.append(T + 50)
        assert await vector.find(T + 50) is None
        vector.log_dir.write_checkpoints()
        assert await vector.find(T + 50) == TimestampOffset(T + 50, 124, 10)

    async def test_segment_without_a_match_behind_the_log_start_does_not_end_the_search(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path)
        partition.append(T + 7, T)
        partition.writer.roll()
        partition.append(T + 3, T + 4)
        partition.writer.roll()
        partition.append(T + 9)
        await partition.copy(0, 2)
        await partition.session.metadata.advance_log_start_offset(partition_of(partition.path), 1)
        assert await partition.find(T + 3) == TimestampOffset(T + 3, 2, 0)

    async def test_a_search_over_many_batches_begins_at_an_indexed_place(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path)
        for number in range(400):
            partition.writer.append([bytes(1000)], timestamp_ms=T + 10 * number)
        partition.writer.roll()
        partition.append(T)
        await partition.copy(0)
        for number in (0, 1, 199, 398, 399):
            assert await partition.find(T + 10 * number) == TimestampOffset(T + 10 * number, number, 0)
            assert await partition.find(T + 10 * number - 9) == TimestampOffset(T + 10 * number, number, 0)
        assert await partition.find(T + 3_991) is None


async def _small_partition(tmp_path: Path) -> Partition:
    """Return records 0 to 5 at T to T+5: [0-1] of epoch 0 and [2-3] of epoch 1 in the tier, 4 and 5 on local disk."""
    partition = Partition(tmp_path)
    partition.append(T, T + 1)
    partition.writer.roll()
    partition.writer.begin_epoch(1)
    partition.append(T + 2, T + 3)
    partition.writer.roll()
    partition.append(T + 4, T + 5)
    await partition.copy(0, 2)
    return partition


class TestASmallPartition:
    @pytest.mark.spec("remote-tiering 215")
    async def test_every_offset_is_listed_with_its_epoch(self, tmp_path: Path) -> None:
        partition = await _small_partition(tmp_path)
        assert await partition.find(OffsetSpec.EARLIEST) == TimestampOffset(-1, 0, 0)
        assert await partition.find(OffsetSpec.EARLIEST_LOCAL) == TimestampOffset(-1, 4, 1)
        assert await partition.find(OffsetSpec.LATEST_TIERED) == TimestampOffset(-1, 3, 1)
        assert await partition.find(OffsetSpec.LATEST) == TimestampOffset(-1, 6, 1)
        assert await partition.find(OffsetSpec.EARLIEST_PENDING_UPLOAD) == TimestampOffset(-1, 4, 1)
        assert await partition.find(OffsetSpec.MAX_TIMESTAMP) == TimestampOffset(T + 5, 5, 1)
        asked = [T + 6, T + 5, T + 4, T - 1, T, T + 1]
        assert await partition.offsets(asked) == [-1, 5, 4, 0, 0, 1]
        assert await partition.find(T + 3) == TimestampOffset(T + 3, 3, 1)

    @pytest.mark.spec("remote-tiering 216")
    async def test_deletion_of_records_moves_the_earliest_offset_and_not_the_latest_tiered_one(
        self, tmp_path: Path
    ) -> None:
        partition = await _small_partition(tmp_path)
        await self._delete_records(partition, 3)
        assert partition.storage.deleted == [0]
        assert await partition.find(OffsetSpec.EARLIEST) == TimestampOffset(-1, 3, 1)

        await self._delete_records(partition, 4)
        (partition.path / "leader-epoch-checkpoint").write_text("0\n1\n1 4\n")  # as the broker truncates the log
        assert partition.storage.deleted == [0, 2]
        assert await partition.find(OffsetSpec.EARLIEST) == TimestampOffset(-1, 4, 1)
        assert await partition.find(OffsetSpec.EARLIEST_LOCAL) == TimestampOffset(-1, 4, 1)
        assert await partition.find(OffsetSpec.LATEST_TIERED) == TimestampOffset(-1, 3, None)
        assert await partition.offsets([T, T + 3, T + 5]) == [4, 4, 5]

    @staticmethod
    async def _delete_records(partition: Partition, before: int) -> None:
        """Apply a DeleteRecords request, with a pass of the expiration."""
        session, clock = partition.session, partition.stores.clock
        await session.metadata.advance_log_start_offset(partition_of(partition.path), before)
        deletion = SegmentDeletion(
            metadata=session.metadata,
            remote=partition.storage,
            recorder=session.recorder,
            clock=clock,
            broker_id=BROKER_ID,
        )
        tools = ExpirationTools(
            metadata=session.metadata,
            deletion=deletion,
            policies=lambda _: TopicPolicy(),
            being_copied=(),
            log_starts=LogStartKeeper(
                metadata=session.metadata,
                storage=partition.storage.log_starts,
                clock=clock,
                broker_id=BROKER_ID,
            ),
            slots=asyncio.Semaphore(1),
            recorder=session.recorder,
            clock=clock,
            grace_s=0,
        )
        await ExpirationTask(_LocalView(partition), leader_epoch=1, tools=tools).run_once()


class _LocalView:
    """View of the expiration on the local log."""

    def __init__(self, partition: Partition) -> None:
        self._path = partition.path

    @property
    def partition(self) -> TopicIdPartition:
        return partition_of(self._path)

    async def facts(self, *, sizes: bool) -> LocalFacts:
        directory = identify_directory(self._path)
        assert directory is not None
        return LocalFacts(scan_partition(directory).lineage, 6, 6)

    async def raise_log_start(self, offset: int) -> None:
        assert offset >= 0


class TestPlaces:
    async def test_pending_upload_begins_at_the_log_start_before_the_first_copy(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path, first_offset=7)
        partition.append(T)
        await partition.copy()
        assert await partition.find(OffsetSpec.LATEST_TIERED) is None
        assert await partition.find(OffsetSpec.EARLIEST_PENDING_UPLOAD) == TimestampOffset(-1, 7, 0)
        assert await partition.find(OffsetSpec.EARLIEST_LOCAL) == TimestampOffset(-1, 7, 0)

    async def test_latest_offset_for_a_committed_reader_is_the_last_stable_offset(self, tmp_path: Path) -> None:
        partition = await _small_partition(tmp_path)
        listed = await partition.task().list_offset(OffsetSpec.LATEST, isolation=IsolationLevel.READ_COMMITTED)
        assert listed == TimestampOffset(-1, 6, 1)

    async def test_a_host_without_a_replica_answers_from_the_tier(self, tmp_path: Path) -> None:
        partition = await _small_partition(tmp_path)
        view = partition.session.metadata.view(partition_of(partition.path))

        async def snapshot() -> TieredLog:
            return TieredLog(view.partition, view, None, None)

        task = FetchTask(snapshot, remote=partition.storage, recorder=partition.session.recorder, prefetch_bytes=0)
        assert await task.list_offset(T + 3) == TimestampOffset(T + 3, 3, 1)
        assert await task.list_offset(T + 4) is None
        assert await task.list_offset(OffsetSpec.MAX_TIMESTAMP) is None
        assert await task.list_offset(OffsetSpec.LATEST) == TimestampOffset(-1, 4, 1)

    async def test_unknown_offset_spec_is_an_error(self, tmp_path: Path) -> None:
        partition = await _small_partition(tmp_path)
        with pytest.raises(ValueError, match="-7"):
            await partition.find(-7)
        with pytest.raises(ValueError, match="MAX_TIMESTAMP"):
            place(await partition.session.tiered_log(partition.path), OffsetSpec.MAX_TIMESTAMP)


@pytest.mark.spec("remote-tiering 204")
def test_a_partition_without_topic_id_has_no_segment_metadata() -> None:
    directory = PartitionDirectory(Path("/kafka/orders-0"), TopicPartition("orders", 0), None, DirectoryKind.CURRENT, 1)
    with pytest.raises(MissingArtefactError, match="topic id"):
        _ = directory.partition
