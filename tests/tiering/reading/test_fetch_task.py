"""FetchTask over copied log dirs: local and remote as one log."""

import shutil
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.golden.unpack import golden_cases
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, delete_segment, partition_of
from tests.tiering.setups import Tier as Stores
from tierd.errors import (
    OffsetOutOfRangeError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from tierd.log import iter_batches
from tierd.model import ByteRange, IndexType, IsolationLevel, RemoteLogSegmentMetadata
from tierd.remote import SegmentStorage
from tierd.tiering import FetchTask, Tier

UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED


class CountingStorage(SegmentStorage):
    """SegmentStorage that records its calls and may refuse them."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self.ranges: list[ByteRange] = []
        self.indexes: list[IndexType] = []
        self.indexed_segments: list[int] = []  # base offsets of the segments of ``indexes``
        self.error: Exception | None = None

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        self.ranges.append(byte_range)
        if self.error is not None:
            raise self.error
        return await super().fetch_log_segment(metadata, byte_range)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        self.indexes.append(index_type)
        self.indexed_segments.append(metadata.start_offset)
        return await super().fetch_index(metadata, index_type)


class Setup:
    """Three rolled segments of eight records and an active one of four, all rolled ones copied."""

    def __init__(self, tmp_path: Path, shape: SegmentShape) -> None:
        self.log_dir = LogDirWriter(tmp_path / "kafka")
        writer = self.log_dir.add_partition("orders")
        writer.fill(rolled_segments=3, shape=shape)
        self.log_dir.write_checkpoints()
        self.path = writer.path
        self.stores = Stores(tmp_path, [self.log_dir.path])
        self.storage = CountingStorage(self.stores)
        self.session: Session = self.stores.session(storage=lambda _: self.storage)

    async def copied(self, *, deleted: int = 3) -> "Setup":
        assert [o.error for o in (await self.session.copy_once()).values()] == [None]
        for base in (0, 8, 16)[:deleted]:
            delete_segment(self.path, base)
        return self

    @property
    def reader(self) -> FetchTask:
        return self.session.reader(self.path)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path, SegmentShape())


async def _offsets(reader: FetchTask, start: int | None = None, end: int | None = None) -> list[int]:
    return [record.offset async for record in reader.records(start, end, UNCOMMITTED)]


class TestRecords:
    async def test_records_of_both_tiers_are_read_as_one_log(self, setup: Setup) -> None:
        await setup.copied()
        assert await _offsets(setup.reader) == list(range(28))

    async def test_local_data_is_preferred(self, setup: Setup) -> None:
        await setup.copied(deleted=0)
        assert await _offsets(setup.reader) == list(range(28))
        assert setup.storage.ranges == []

    async def test_a_range_begins_and_ends_inside_batches(self, setup: Setup) -> None:
        await setup.copied(deleted=2)
        assert await _offsets(setup.reader, 5, 19) == list(range(5, 19))

    async def test_reader_gets_no_record_above_the_high_watermark(self, setup: Setup) -> None:
        await setup.copied(deleted=2)
        (setup.log_dir.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 24\n")
        assert await _offsets(setup.reader) == list(range(24))

    async def test_records_of_files_that_vanish_during_a_read_are_read_from_the_tier(self, setup: Setup) -> None:
        await setup.copied(deleted=0)
        records = setup.reader.records(None, None, UNCOMMITTED)
        seen = [(await anext(records)).offset]
        for base in (0, 8, 16):
            delete_segment(setup.path, base)
        seen += [record.offset async for record in records]
        assert seen == list(range(28))

    async def test_early_exit_of_a_reader_ends_its_read_ahead(self, tmp_path: Path) -> None:
        setup = await Setup(tmp_path, SegmentShape(batches=40, value_bytes=2000)).copied(deleted=0)
        for base in (0, 160, 320):
            delete_segment(setup.path, base)
        records = setup.session.reader(setup.path, prefetch_bytes=64 << 10).records(None, None, UNCOMMITTED)
        assert (await anext(records)).offset == 0
        await records.aclose()
        assert len(setup.storage.ranges) == 2, "one read, and one read ahead"

    async def test_a_sequential_reader_reads_every_byte_once(self, tmp_path: Path) -> None:
        setup = await Setup(tmp_path, SegmentShape(batches=40, value_bytes=2000)).copied(deleted=0)
        for base in (0, 160, 320):
            delete_segment(setup.path, base)
        reader = setup.session.reader(setup.path, prefetch_bytes=64 << 10)
        assert await _offsets(reader) == list(range(484))
        sizes = sum(row.size_bytes for row in setup.session.rows(partition_of(setup.path)))
        assert sum(r.size for r in setup.storage.ranges) == sizes
        assert setup.session.recorder.fetched_bytes == sizes
        assert setup.session.recorder.fetches == 3


class TestOneRead:
    @pytest.mark.spec("remote-tiering 196")
    async def test_a_remote_read_is_counted_with_its_bytes(self, setup: Setup) -> None:
        await setup.copied()
        result = await setup.reader.read(0, max_bytes=1 << 20, isolation=UNCOMMITTED)
        assert (result.tier, result.base_offset, result.next_offset) == (Tier.REMOTE, 0, 8)
        recorder = setup.session.recorder
        assert (recorder.fetches, recorder.fetch_failures) == (1, 0)
        assert recorder.fetched_bytes == len(result.data)

    @pytest.mark.spec("remote-tiering 200")
    async def test_an_offset_inside_a_batch_gives_that_batch_and_its_position(self, setup: Setup) -> None:
        await setup.copied()
        result = await setup.reader.read(14, max_bytes=1 << 20, isolation=UNCOMMITTED)
        (batch,) = iter_batches(result.data, name="read")
        assert (result.base_offset, result.position) == (12, batch.size_bytes)

    @pytest.mark.spec("remote-tiering 199")
    async def test_first_batch_above_the_limit_is_returned_only_with_at_least_one(self, setup: Setup) -> None:
        await setup.copied()
        whole = await setup.reader.read(0, max_bytes=10, isolation=UNCOMMITTED)
        assert (whole.base_offset, whole.next_offset) == (0, 4)
        nothing = await setup.reader.read(0, max_bytes=10, isolation=UNCOMMITTED, at_least_one=False)
        assert (nothing.data, nothing.next_offset) == (b"", 0)

    async def test_a_batch_larger_than_any_range_is_fetched_whole(self, tmp_path: Path) -> None:
        setup = await Setup(tmp_path, SegmentShape(batches=1, records_per_batch=8, value_bytes=100_000)).copied()
        result = await setup.reader.read(0, max_bytes=10, isolation=UNCOMMITTED)
        assert (result.base_offset, result.next_offset) == (0, 8)

    async def test_read_requests_little_more_than_its_limit(self, tmp_path: Path) -> None:
        setup = await Setup(tmp_path, SegmentShape(batches=400, value_bytes=2000)).copied(deleted=0)
        delete_segment(setup.path, 0)
        await setup.reader.read(1000, max_bytes=4096, isolation=UNCOMMITTED)
        (asked,) = setup.storage.ranges
        assert asked.start > 1_000_000, "the index gave the floor position"
        assert asked.size <= 4096 + 128 * 1024

    @pytest.mark.spec("remote-tiering 198")
    async def test_read_in_a_segment_without_a_batch_at_the_offset_continues_in_the_next_one(
        self, tmp_path: Path
    ) -> None:
        setup = Setup(tmp_path, SegmentShape())
        (setup.path / f"{8:020d}.log").write_bytes(b"")  # compacted to nothing
        await setup.copied()
        result = await setup.reader.read(8, max_bytes=1 << 20, isolation=UNCOMMITTED)
        assert result.base_offset == 16
        assert await _offsets(setup.reader) == [*range(8), *range(16, 28)]

    async def test_the_end_of_the_log_is_empty_and_beyond_it_is_out_of_range(self, setup: Setup) -> None:
        await setup.copied()
        assert (await setup.reader.read(28, max_bytes=10, isolation=UNCOMMITTED)).data == b""
        with pytest.raises(OffsetOutOfRangeError):
            await setup.reader.read(29, max_bytes=10, isolation=UNCOMMITTED)


class TestErrors:
    @pytest.mark.spec("remote-tiering 205")
    async def test_missing_object_is_a_storage_error_and_not_out_of_range(self, setup: Setup) -> None:
        await setup.copied()
        for info in await setup.stores.store.list_objects(""):
            if info.key.endswith(".log"):
                await setup.stores.store.delete(info.key)
        with pytest.raises(RemoteResourceNotFoundError):
            await _offsets(setup.reader)

    @pytest.mark.spec("remote-tiering 197")
    async def test_a_failed_read_is_counted_and_an_offset_out_of_range_is_not(self, setup: Setup) -> None:
        await setup.copied()
        await setup.session.metadata.advance_log_start_offset(partition_of(setup.path), 10)
        with pytest.raises(OffsetOutOfRangeError):
            await setup.reader.read(9, max_bytes=10, isolation=UNCOMMITTED)
        assert setup.session.recorder.fetch_failures == 0
        setup.storage.error = RetriableRemoteStorageError("slow")
        with pytest.raises(RetriableRemoteStorageError):
            await setup.reader.read(10, max_bytes=10, isolation=UNCOMMITTED)
        assert setup.session.recorder.fetch_failures == 1
        assert setup.session.recorder.fetched_bytes == 0

    async def test_damaged_remote_bytes_are_an_integrity_error(self, setup: Setup) -> None:
        await setup.copied()
        store = setup.stores.store
        (key,) = [info.key for info in await store.list_objects("") if f"{0:020d}" in info.key and ".log" in info.key]
        content = bytearray(await store.get(key))
        content[100] ^= 1
        await store.delete(key)
        await store.put(key, bytes(content))
        with pytest.raises(RemoteIntegrityError):
            await _offsets(setup.reader)

    async def test_a_gap_is_named_with_the_next_readable_offset(self, setup: Setup) -> None:
        (setup.log_dir.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 8\n")
        await setup.copied(deleted=0)
        delete_segment(setup.path, 0)
        delete_segment(setup.path, 8)
        setup.log_dir.write_checkpoints()
        with pytest.raises(OffsetOutOfRangeError, match="neither tier") as caught:
            await _offsets(setup.reader, 0)
        assert "16" in caught.value.remedy


class TestTransactions:
    @staticmethod
    async def _transactional(golden: Path, tmp_path: Path, *, kept_local: int) -> tuple[Setup, list[int]]:
        """Copy the golden partition of transactions that span segments, its first segments only in the tier."""
        (case,) = [c for c in golden_cases("clean") if c.partition == "txn-closed-0" and c.broker.endswith("4.3.1")]
        setup = Setup.__new__(Setup)
        log_dir = tmp_path / "kafka"
        shutil.copytree(golden / case.logdirs[0], log_dir)
        setup.path = log_dir / case.partition
        setup.stores = Stores(tmp_path, [log_dir])
        setup.storage = CountingStorage(setup.stores)
        setup.session = setup.stores.session(storage=lambda _: setup.storage, wants=lambda topic: topic == "txn-closed")
        assert [o.error for o in (await setup.session.copy_once()).values()] == [None]
        bases = [row.start_offset for row in setup.session.rows(partition_of(setup.path))]
        for base in bases[: len(bases) - kept_local]:
            delete_segment(setup.path, base)
        return setup, bases

    @pytest.mark.spec("remote-tiering 202")
    @pytest.mark.parametrize("kept_local", [0, 1, 2])
    async def test_abort_marker_in_another_segment_or_tier_is_found_once(
        self, golden: Path, tmp_path: Path, kept_local: int
    ) -> None:
        setup, _ = await self._transactional(golden, tmp_path, kept_local=0)
        expected = [r.offset for r in await setup.session.read_all(setup.path, COMMITTED)]
        other, bases = await self._transactional(golden, tmp_path / "other", kept_local=kept_local)
        assert [r.offset for r in await other.session.read_all(other.path, COMMITTED)] == expected
        for base in bases:
            result = await other.reader.read(base, max_bytes=1 << 20, isolation=COMMITTED)
            assert len(set(result.aborted)) == len(result.aborted)

    @pytest.mark.spec("remote-tiering 203")
    async def test_transaction_index_of_a_segment_without_aborts_is_not_fetched(self, setup: Setup) -> None:
        await setup.copied()
        assert len(await setup.session.read_all(setup.path, COMMITTED)) == 28
        assert IndexType.TRANSACTION not in setup.storage.indexes
