"""FetchService and the gate within FetchTask, over copied log dirs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.coded import coded
from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.manual_clock import ManualClock
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, delete_segment
from tests.tiering.setups import Tier as Stores
from tierd.config import FetchSettings
from tierd.errors import (
    OffsetOutOfRangeError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageNotReadyError,
    RetriableRemoteStorageError,
    TierErrorCode,
)
from tierd.model import ByteRange, IndexType, IsolationLevel, RemoteLogSegmentMetadata
from tierd.remote import ChunkCache, SegmentStorage
from tierd.tiering import FetchService, FetchTask, TieredLog, open_fetch_service
from tierd.tiering.reading.fetch_result import FetchResult

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


class HeldStorage(SegmentStorage):
    """SegmentStorage that counts calls, and waits or fails on demand."""

    def __init__(self, stores: Stores, *, cache: ChunkCache | None = None) -> None:
        super().__init__(stores.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID, cache=cache)
        self.calls = 0
        self.open = asyncio.Event()
        self.open.set()
        self.error: RemoteStorageError | None = None
        self.distort: Callable[[bytes], bytes] | None = None

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        self.calls += 1
        await self.open.wait()
        if self.error is not None:
            raise self.error
        found = await super().fetch_log_segment(metadata, byte_range)
        return found if self.distort is None else self.distort(found)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        self.calls += 1
        return await super().fetch_index(metadata, index_type)


@dataclass
class Setup:
    """Three segments of two batches with four records each, in the tier alone, and an active one of four records."""

    path: Path
    stores: Stores
    session: Session
    storage: HeldStorage
    tmp_path: Path
    clock: ManualClock = field(default_factory=ManualClock)

    def snapshot(self) -> Callable[[], "asyncio.Future[TieredLog]"]:
        return lambda: asyncio.ensure_future(self.session.tiered_log(self.path))


@pytest.fixture
async def setup(tmp_path: Path) -> Setup:
    log_dir = LogDirWriter(tmp_path / "kafka")
    writer = log_dir.add_partition("orders")
    writer.fill(rolled_segments=3, shape=SegmentShape())
    log_dir.write_checkpoints()
    stores = Stores(tmp_path, [log_dir.path])
    storage = HeldStorage(stores)
    session = stores.session(storage=lambda _: storage)
    assert [o.error for o in (await session.copy_once()).values()] == [None]
    for base in (0, 8, 16):
        delete_segment(writer.path, base)
    return Setup(writer.path, stores, session, storage, tmp_path)


@pytest.fixture
async def service(setup: Setup) -> AsyncIterator[FetchService]:
    async with opened(setup, FetchSettings(concurrency=1, max_pending=1)) as service:
        yield service


def opened(setup: Setup, settings: FetchSettings) -> AbstractAsyncContextManager[FetchService]:
    return open_fetch_service(
        setup.storage,
        settings=settings,
        piece_bytes=1 << 20,
        index_directory=setup.tmp_path / "indexes",
        chunks=None,
        recorder=setup.session.recorder,
        clock=setup.clock,
    )


async def read(
    service: FetchService, task: FetchTask, offset: int, *, max_bytes: int = 1 << 20, max_wait_s: float = 10.0
) -> FetchResult:
    return await service.read(task, offset, max_bytes=max_bytes, isolation=UNCOMMITTED, max_wait_s=max_wait_s)


async def test_read_returns_the_batches_of_a_copied_segment(setup: Setup, service: FetchService) -> None:
    result = await read(service, service.task(setup.snapshot()), 8)
    assert (result.base_offset, result.next_offset) == (8, 16)


async def test_read_ends_with_its_segment_or_with_its_bytes(setup: Setup, service: FetchService) -> None:
    task = service.task(setup.snapshot())
    whole, half = await read(service, task, 0), await read(service, task, 0, max_bytes=1)
    assert (whole.next_offset, half.next_offset) == (8, 4)


class TestQuota:
    LIMIT = FetchSettings(max_bytes_per_second=10)

    @pytest.mark.spec("remote-tiering 162")
    async def test_quota_records_the_bytes_of_a_read_and_none_of_a_failed_read(self, setup: Setup) -> None:
        async with opened(setup, self.LIMIT) as service:
            task = service.task(setup.snapshot())
            setup.storage.error = RetriableRemoteStorageError("slow")
            with pytest.raises(RetriableRemoteStorageError):
                await read(service, task, 0)
            assert service._gate.throttle_ms() == 0
            setup.storage.error = None
            result = await read(service, task, 0)
            assert service._gate._quota.rate(setup.clock.monotonic_s()) == len(result.data)

    @pytest.mark.spec("remote-tiering 208")
    async def test_read_above_the_quota_returns_an_empty_answer(self, setup: Setup) -> None:
        async with opened(setup, self.LIMIT) as service:
            task = service.task(setup.snapshot())
            size = len((await read(service, task, 0)).data)
            setup.storage.calls = 0
            result = await read(service, task, 8)
            assert (result.data, result.base_offset, result.next_offset) == (b"", None, 8)
            assert result.throttled_ms == round((size / 10 - 1) * 1000)
            assert setup.session.recorder.throttles_ms == [result.throttled_ms]
            assert setup.storage.calls == 0
            assert (await read(service, task, 24)).next_offset == 28, "local reads continue"
            setup.clock.advance(size / 10 + 1)
            assert (await read(service, task, 8)).next_offset == 16


class TestPlaces:
    @pytest.mark.spec("remote-tiering 206")
    async def test_reads_beyond_the_bound_of_the_queue_are_refused_at_once(
        self, setup: Setup, service: FetchService
    ) -> None:
        task = service.task(setup.snapshot())
        setup.storage.open.clear()
        reads = [asyncio.create_task(read(service, task, 0)) for _ in range(2)]
        await eventually(lambda: service.statistics().gate.pending == 1, what="the queue")
        with pytest.raises(RetriableRemoteStorageError, check=coded(TierErrorCode.READER_BUSY)):
            await read(service, task, 0)
        assert (await read(service, task, 24)).next_offset == 28, "local reads need no place"
        setup.storage.open.set()
        assert [result.next_offset for result in await asyncio.gather(*reads)] == [8, 8]

    @pytest.mark.spec("remote-tiering 207")
    async def test_search_that_is_cancelled_in_the_queue_does_not_run(
        self, setup: Setup, service: FetchService
    ) -> None:
        task = service.task(setup.snapshot())
        setup.storage.open.clear()
        running = asyncio.create_task(read(service, task, 0))
        await eventually(lambda: setup.storage.calls == 1, what="the read")
        search = asyncio.create_task(service.list_offset(task, 1_700_000_000_000))
        await eventually(lambda: service.statistics().gate.pending == 1, what="the queue")
        search.cancel()
        await asyncio.wait({search})
        assert service.statistics().gate.pending == 0
        setup.storage.open.set()
        await running
        assert setup.storage.calls == 1
        assert service.statistics().gate.running == 0

    async def test_read_that_exceeds_its_wait_continues_without_the_waiter(
        self, setup: Setup, service: FetchService
    ) -> None:
        task = service.task(setup.snapshot())
        setup.storage.open.clear()
        result = await read(service, task, 0, max_wait_s=0.05)
        assert (result.data, result.next_offset) == (b"", 0)
        assert service.statistics().gate.running == 1
        setup.storage.open.set()
        await eventually(lambda: service.statistics().gate.running == 0, what="the read")
        assert setup.session.recorder.fetched_bytes > 0

    async def test_later_call_with_the_same_arguments_gets_the_read_that_was_late(
        self, setup: Setup, service: FetchService
    ) -> None:
        task = service.task(setup.snapshot())
        setup.storage.open.clear()
        late = await read(service, task, 0, max_wait_s=0.05)
        assert (late.is_pending, late.data, late.next_offset) == (True, b"", 0)
        calls = setup.storage.calls
        setup.storage.open.set()
        result = await read(service, task, 0)
        assert (result.is_pending, result.next_offset) == (False, 8)
        assert setup.storage.calls == calls

    async def test_error_of_a_late_read_is_raised_by_the_later_call(self, setup: Setup, service: FetchService) -> None:
        task = service.task(setup.snapshot())
        setup.storage.open.clear()
        await read(service, task, 0, max_wait_s=0.05)
        setup.storage.error = RetriableRemoteStorageError("slow")
        setup.storage.open.set()
        await eventually(lambda: service.statistics().gate.running == 0, what="the read")
        setup.storage.error = None
        with pytest.raises(RetriableRemoteStorageError, match="slow"):
            await read(service, task, 0)
        assert (await read(service, task, 0)).next_offset == 8

    async def test_late_read_that_no_call_asks_for_is_forgotten(self, setup: Setup, service: FetchService) -> None:
        task = service.task(setup.snapshot())
        setup.storage.open.clear()
        await read(service, task, 0, max_wait_s=0.05)
        setup.storage.open.set()
        await eventually(lambda: service.statistics().gate.running == 0, what="the read")
        assert len(service._late) == 1
        await eventually(lambda: setup.clock.sleeping > 0, what="the sweeper")
        setup.clock.advance(31)
        await eventually(lambda: not len(service._late), what="the sweep")

    async def test_a_slow_store_succeeds_at_the_next_attempt(self, setup: Setup) -> None:
        store = setup.stores.store
        gate = asyncio.Event()

        class Slow:
            asked = 0

            async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
                self.asked += 1
                await gate.wait()
                return await store.get(key, byte_range)

        slow = Slow()
        chunks = await ChunkCache.open(
            slow, directory=setup.tmp_path / "chunks", capacity_bytes=1 << 20, clock=setup.stores.clock
        )
        storage = SegmentStorage(store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID, cache=chunks)
        async with open_fetch_service(
            storage,
            settings=FetchSettings(),
            piece_bytes=4 << 20,
            index_directory=None,
            chunks=chunks,
            recorder=setup.session.recorder,
            clock=setup.stores.clock,
        ) as service:
            task = service.task(setup.snapshot())
            assert (await read(service, task, 0, max_wait_s=0.05)).data == b""
            gate.set()
            assert (await read(service, task, 0)).next_offset == 8
            assert slow.asked == 1
            statistics = service.statistics().chunks
            assert statistics is not None
            assert statistics.misses == 1
        await chunks.close()

    async def test_close_ends_reads_and_refuses_later_reads(self, setup: Setup) -> None:
        async with opened(setup, FetchSettings()) as service:
            task = service.task(setup.snapshot())
            setup.storage.open.clear()
            running = asyncio.create_task(read(service, task, 0))
            await eventually(lambda: setup.storage.calls == 1, what="the read")
        with pytest.raises(RemoteStorageError, check=coded(TierErrorCode.READER_CLOSED)):
            await running
        with pytest.raises(RemoteStorageError, check=coded(TierErrorCode.READER_CLOSED)):
            await read(service, task, 0)


class TestNextReads:
    """Reads that begin while the caller uses the result before them."""

    SMALL = 100

    async def ready(self, service: FetchService) -> None:
        await eventually(lambda: all(task.done() for task in service._running), what="the next read")

    async def test_next_read_is_ready_before_it_is_asked_for(self, setup: Setup, service: FetchService) -> None:
        task = service.task(setup.snapshot())
        first = await read(service, task, 0, max_bytes=self.SMALL)
        await self.ready(service)
        setup.storage.open.clear()
        second = await read(service, task, first.next_offset, max_bytes=self.SMALL, max_wait_s=0)
        assert (second.base_offset, second.next_offset) == (4, 8)

    async def test_sequence_of_reads_returns_every_batch_once(self, setup: Setup, service: FetchService) -> None:
        task, offset, bases = service.task(setup.snapshot()), 0, list[int | None]()
        while (result := await read(service, task, offset, max_bytes=self.SMALL)).data and offset < 24:
            bases.append(result.base_offset)
            offset = result.next_offset
        assert bases == [0, 4, 8, 12, 16, 20]

    async def test_failed_next_read_is_read_again(self, setup: Setup, service: FetchService) -> None:
        task = service.task(setup.snapshot())
        await read(service, task, 0)
        await self.ready(service)
        setup.storage.error = RetriableRemoteStorageError("slow")
        await read(service, task, 8)
        await self.ready(service)  # the read from 16 on has failed
        setup.storage.error = None
        assert (await read(service, task, 16)).next_offset == 24

    async def test_first_batch_above_the_bound_is_left_out_for_a_caller_that_does_not_need_one(
        self, setup: Setup, service: FetchService
    ) -> None:
        task = service.task(setup.snapshot())
        first = await read(service, task, 0, max_bytes=1)
        await self.ready(service)
        call = {"max_bytes": 1, "isolation": UNCOMMITTED, "max_wait_s": 10.0}
        found = await service.read(task, first.next_offset, at_least_one=False, **call)  # type: ignore[arg-type]
        assert (found.data, found.next_offset) == (b"", first.next_offset)

    async def test_next_reads_keep_within_the_bytes_of_the_prefetch(self, setup: Setup) -> None:
        async with opened(setup, FetchSettings(prefetch_bytes=150)) as service:
            first, second = service.task(setup.snapshot()), service.task(setup.snapshot())
            await read(service, first, 0, max_bytes=self.SMALL)
            await self.ready(service)
            calls = setup.storage.calls
            await read(service, second, 0, max_bytes=self.SMALL)
            await self.ready(service)
            assert service._next.max_bytes == self.SMALL
            assert setup.storage.calls > calls

    async def test_next_read_that_no_call_asks_for_is_forgotten(self, setup: Setup, service: FetchService) -> None:
        await read(service, service.task(setup.snapshot()), 0, max_bytes=self.SMALL)
        assert len(service._next) == 1
        await self.ready(service)
        await eventually(lambda: setup.clock.sleeping > 0, what="the sweeper")
        setup.clock.advance(5)
        await eventually(lambda: len(service._next) == 0, what="the read to be forgotten")

    async def test_end_of_the_tier_begins_no_next_read(self, setup: Setup, service: FetchService) -> None:
        await read(service, service.task(setup.snapshot()), 16)
        assert len(service._next) == 0


class TestErrorClasses:
    """Error of each cause, as a server of consumers receives it (remote-tiering 14.6)."""

    async def test_metadata_that_is_not_loaded_is_retriable(self, setup: Setup, service: FetchService) -> None:
        async def not_ready() -> TieredLog:
            raise RemoteStorageNotReadyError("orders-0 is not loaded")

        with pytest.raises(RemoteStorageNotReadyError) as error:
            await read(service, service.task(not_ready), 0)
        assert error.value.retriable

    async def test_offset_without_a_segment_in_the_metadata_is_out_of_range(
        self, setup: Setup, service: FetchService
    ) -> None:
        log = await setup.session.tiered_log(setup.path)

        async def hole() -> TieredLog:
            return TieredLog(log.partition, replace(log.view, epochs={}), log.scan, log.high_watermark)

        with pytest.raises(OffsetOutOfRangeError):
            await read(service, service.task(hole), 8)

    @pytest.mark.spec("remote-tiering 205")
    async def test_missing_object_is_a_storage_error_and_is_counted(self, setup: Setup, service: FetchService) -> None:
        for info in await setup.stores.store.list_objects(""):
            if info.key.endswith(".log"):
                await setup.stores.store.delete(info.key)
        with pytest.raises(RemoteResourceNotFoundError) as error:
            await read(service, service.task(setup.snapshot()), 8)
        assert not isinstance(error.value, OffsetOutOfRangeError)
        assert not error.value.retriable
        assert setup.session.recorder.fetch_failures == 1

    async def test_a_store_that_is_slow_or_busy_is_retriable(self, setup: Setup, service: FetchService) -> None:
        setup.storage.error = RetriableRemoteStorageError("503 SlowDown")
        with pytest.raises(RetriableRemoteStorageError):
            await read(service, service.task(setup.snapshot()), 8)
        assert setup.session.recorder.fetch_failures == 1


class TestTimestampSearches:
    @pytest.mark.spec("remote-tiering 214")
    async def test_failed_search_returns_its_error(self, setup: Setup, service: FetchService) -> None:
        task = service.task(setup.snapshot())
        setup.storage.error = RetriableRemoteStorageError("slow")
        found = await service.list_offset(task, 1_700_000_000_000)
        assert found is setup.storage.error
        assert service.statistics().gate.running == 0

    async def test_search_that_exceeds_its_timeout_returns_an_error(self, setup: Setup) -> None:
        async with opened(setup, FetchSettings(timestamp_timeout_s=0.05)) as service:
            setup.storage.open.clear()
            found = await service.list_offset(service.task(setup.snapshot()), 1_700_000_000_000)
            assert isinstance(found, RetriableRemoteStorageError)
            assert service.statistics().gate.running == 0
