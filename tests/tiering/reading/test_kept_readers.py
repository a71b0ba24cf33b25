"""Client that continues where it stopped: its bytes are fetched ahead and equal those that a new reader returns."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.left_tasks import nothing_left
from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.manual_clock import ManualClock
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, delete_segment
from tests.tiering.setups import Tier as Stores
from tierd.config import FetchSettings
from tierd.errors import OffsetOutOfRangeError, RemoteStorageError, RetriableRemoteStorageError
from tierd.model import ByteRange, IsolationLevel, RemoteLogSegmentMetadata
from tierd.remote import SegmentStorage
from tierd.testing import cancel_at
from tierd.tiering import FetchService, FetchTask, TieredLog, open_fetch_service
from tierd.tiering.reading.tiered_log import Tier

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
KIB = 1 << 10
SEGMENTS, RECORDS = 3, 160
PIECE, PREFETCH = 64 * KIB, 1024 * KIB


class CountingStorage(SegmentStorage):
    """Storage that records requested ranges and those in flight, and answers on demand."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self.asked: list[ByteRange] = []
        self.under_way = 0
        self.open = asyncio.Event()
        self.open.set()
        self.error: RemoteStorageError | None = None
        self.turns_to_end = 0  # of the loop

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        self.asked.append(byte_range)
        self.under_way += 1
        try:
            await self.open.wait()
            if self.error is not None:
                raise self.error
            return await super().fetch_log_segment(metadata, byte_range)
        finally:
            for _ in range(self.turns_to_end):
                await asyncio.sleep(0)
            self.under_way -= 1


@dataclass
class Setup:
    """Three segments of 40 batches with 4 records of 2 KB each, about 320 KiB a segment, in the tier alone."""

    path: Path
    session: Session
    storage: CountingStorage
    service: FetchService
    clock: ManualClock

    async def snapshot(self) -> TieredLog:
        return await self.session.tiered_log(self.path)

    def task(self) -> FetchTask:
        return self.service.task(self.snapshot)

    async def read(self, offset: int, *, max_bytes: int = 32 * KIB) -> tuple[int | None, bytes, int]:
        """Read by a new task each time, as for a request."""
        result = await self.task().read(offset, max_bytes=max_bytes, isolation=UNCOMMITTED)
        return result.base_offset, result.data, result.next_offset


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    log_dir = LogDirWriter(tmp_path / "kafka")
    writer = log_dir.add_partition("orders")
    writer.fill(rolled_segments=SEGMENTS, shape=SegmentShape(batches=40, value_bytes=2000))
    log_dir.write_checkpoints()
    stores = Stores(tmp_path, [log_dir.path])
    storage = CountingStorage(stores)
    session = stores.session(storage=lambda _: storage)
    assert [o.error for o in (await session.copy_once()).values()] == [None]
    for base in range(0, SEGMENTS * RECORDS, RECORDS):
        delete_segment(writer.path, base)
    clock = ManualClock()
    async with open_fetch_service(
        storage,
        settings=FetchSettings(prefetch_bytes=PREFETCH),
        piece_bytes=PIECE,
        index_directory=None,
        chunks=None,
        recorder=session.recorder,
        clock=clock,
    ) as service:
        yield Setup(writer.path, session, storage, service, clock)
    assert storage.under_way == 0


@pytest.mark.parametrize("max_bytes", [1, 10 * KIB, 32 * KIB, 100 * KIB, 1024 * KIB])
async def test_consecutive_reads_return_the_same_as_separate_reads(setup: Setup, max_bytes: int) -> None:
    plain = FetchTask(
        setup.snapshot, remote=setup.storage, recorder=setup.session.recorder, prefetch_bytes=0, piece_bytes=PIECE
    )
    offset = 0
    while offset < SEGMENTS * RECORDS:
        expected = await plain.read(offset, max_bytes=max_bytes, isolation=UNCOMMITTED)
        assert await setup.read(offset, max_bytes=max_bytes) == (
            expected.base_offset,
            expected.data,
            expected.next_offset,
        )
        offset = expected.next_offset


async def test_every_byte_is_requested_once(setup: Setup) -> None:
    offset, size = 0, 0
    while offset < SEGMENTS * RECORDS:
        _, data, offset = await setup.read(offset)
        size += len(data)
    assert sum(asked.size for asked in setup.storage.asked) == size


async def test_first_read_requests_no_range_ahead(setup: Setup) -> None:
    await setup.read(0)
    assert len(setup.storage.asked) == 1


async def test_continued_read_finds_its_bytes_fetched_ahead(setup: Setup) -> None:
    offset = 0
    for _ in range(4):
        _, _, offset = await setup.read(offset)
    setup.storage.open.clear()
    held = len(setup.storage.asked)
    _, data, offset = await setup.read(offset)
    assert data, "it had been fetched ahead of the read"
    await eventually(lambda: len(setup.storage.asked) > held, what="more that is asked for ahead")
    setup.storage.open.set()


async def test_reader_at_another_offset_does_not_disturb_kept_readers(setup: Setup) -> None:
    _, _, first = await setup.read(0)
    _, _, second = await setup.read(200)
    assert (await setup.read(first))[0] == first
    assert (await setup.read(second))[0] == second
    assert (await setup.read(first))[0] == first, "another reader of the same bytes"


async def test_idle_reader_is_closed(setup: Setup) -> None:
    _, _, offset = await setup.read(0)
    _, _, offset = await setup.read(offset)
    assert len(setup.service._kept) == 1
    await eventually(lambda: setup.clock.sleeping > 0, what="the sweeper")
    setup.clock.advance(31)
    await eventually(lambda: len(setup.service._kept) == 0, what="the idle reader's end")
    assert (await setup.read(offset))[0] == offset


async def test_number_of_kept_readers_is_bounded(setup: Setup) -> None:
    for base in range(0, 400, 8):
        await setup.read(base, max_bytes=1)
    assert len(setup.service._kept) == 16


async def test_range_that_failed_ahead_is_requested_again(setup: Setup) -> None:
    _, _, offset = await setup.read(0)
    setup.storage.error = RetriableRemoteStorageError("reset")
    _, _, offset = await setup.read(offset)  # its own bytes are present; the ranges ahead fail
    await eventually(lambda: setup.storage.under_way == 0, what="the failures")
    setup.storage.error = None
    while offset < SEGMENTS * RECORDS:
        _, data, offset = await setup.read(offset)
        assert data


async def test_deleted_records_are_not_returned_by_a_kept_reader(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, offset = await setup.read(0)
    _, _, offset = await setup.read(offset)
    monkeypatch.setattr(TieredLog, "log_start_offset", SEGMENTS * RECORDS)
    with pytest.raises(OffsetOutOfRangeError):
        await setup.read(offset)
    assert len(setup.service._kept) == 0


async def test_service_whose_close_is_cancelled_at_any_await_leaves_no_read_under_way(setup: Setup) -> None:
    suspension, was_cancelled = 0, True
    while was_cancelled:
        suspension += 1
        with nothing_left():
            setup.storage.open.set()
            setup.storage.turns_to_end = 0
            service = FetchService(
                setup.storage,
                settings=FetchSettings(prefetch_bytes=PREFETCH),
                piece_bytes=PIECE,
                chunks=None,
                indexes=None,
                recorder=setup.session.recorder,
                clock=ManualClock(),
            )
            task, offset = service.task(setup.snapshot), 0
            for _ in range(4):
                offset = (await task.read(offset, max_bytes=32 * KIB, isolation=UNCOMMITTED)).next_offset
            setup.storage.open.clear()
            setup.storage.turns_to_end = 3
            await task.read(offset, max_bytes=32 * KIB, isolation=UNCOMMITTED)
            late = await service.read(task, 200, max_bytes=KIB, isolation=UNCOMMITTED, max_wait_s=0)
            assert late.is_pending
            await eventually(lambda: setup.storage.under_way > 1, what="reads ahead, and the late one")
            was_cancelled = await cancel_at(suspension, service.close)
            assert setup.storage.under_way == 0
            del task, service
    assert suspension > 1
    setup.storage.open.set()


async def test_reader_that_reaches_the_local_log_is_not_kept(setup: Setup) -> None:
    _, _, offset = await setup.read((SEGMENTS - 1) * RECORDS, max_bytes=1024 * KIB)
    while offset < SEGMENTS * RECORDS:
        _, _, offset = await setup.read(offset, max_bytes=1024 * KIB)
    result = await setup.task().read(offset, max_bytes=KIB, isolation=UNCOMMITTED)
    assert result.tier is Tier.LOCAL
    assert len(setup.service._kept) == 0
