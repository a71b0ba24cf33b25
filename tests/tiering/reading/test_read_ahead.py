"""Read-ahead of a sequential reader in the tier: several ranges in flight, across segments, to hide latency."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, delete_segment, partition_of
from tests.tiering.setups import Tier as Stores
from tierd.errors import RemoteIntegrityError, RetriableRemoteStorageError
from tierd.model import ByteRange, IsolationLevel, RemoteLogSegmentMetadata
from tierd.remote import SegmentStorage
from tierd.tiering import FetchTask

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
KIB = 1 << 10
SEGMENTS, RECORDS = 4, 160


@dataclass
class Asked:
    """Requested range."""

    segment: int
    byte_range: ByteRange
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class HeldStorage(SegmentStorage):
    """SegmentStorage whose ranges are answered on demand, or at once."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self.asked: list[Asked] = []
        self.is_held = False
        self.most_bytes = 0
        self.failing: Callable[[Asked], Exception | None] = lambda _: None
        self.cancelled = 0

    @property
    def under_way(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.answered.is_set()]

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        asked = Asked(metadata.start_offset, byte_range)
        self.asked.append(asked)
        self.most_bytes = max(self.most_bytes, sum(a.byte_range.size for a in self.under_way))
        try:
            if self.is_held:
                await asked.answered.wait()
            if error := self.failing(asked):
                raise error
            return await super().fetch_log_segment(metadata, byte_range)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            asked.answered.set()


@dataclass
class Setup:
    """Four segments of 40 batches with 4 records of 2 KB each in the tier, about 320 KiB a segment."""

    path: Path
    session: Session
    storage: HeldStorage

    def task(self, *, prefetch: int, piece: int = 64 * KIB) -> FetchTask:
        return FetchTask(
            lambda: self.session.tiered_log(self.path),
            remote=self.storage,
            recorder=self.session.recorder,
            prefetch_bytes=prefetch,
            piece_bytes=piece,
        )

    @property
    def tiered_bytes(self) -> int:
        return sum(row.size_bytes for row in self.session.rows(partition_of(self.path)))


@pytest.fixture
async def setup(tmp_path: Path) -> Setup:
    log_dir = LogDirWriter(tmp_path / "kafka")
    writer = log_dir.add_partition("orders")
    writer.fill(rolled_segments=SEGMENTS, shape=SegmentShape(batches=40, value_bytes=2000))
    log_dir.write_checkpoints()
    stores = Stores(tmp_path, [log_dir.path])
    storage = HeldStorage(stores)
    session = stores.session(storage=lambda _: storage)
    assert [o.error for o in (await session.copy_once()).values()] == [None]
    for base in range(0, SEGMENTS * RECORDS, RECORDS):
        delete_segment(writer.path, base)
    return Setup(writer.path, session, storage)


async def offsets(task: FetchTask, start: int | None = None, end: int | None = None) -> list[int]:
    return [record.offset async for record in task.records(start, end, UNCOMMITTED)]


async def collect(task: FetchTask, seen: list[int]) -> None:
    """Append each offset as it is read, so that offsets before an error are kept."""
    async for record in task.records(None, None, UNCOMMITTED):
        seen.append(record.offset)  # noqa: PERF401 - offsets before an error count


async def test_read_of_the_whole_log_requests_its_window_at_once(setup: Setup) -> None:
    setup.storage.is_held = True
    reading = asyncio.create_task(offsets(setup.task(prefetch=256 * KIB)))
    await eventually(lambda: len(setup.storage.under_way) == 4, what="the window")
    assert [a.byte_range.start for a in setup.storage.under_way] == [0, 64 * KIB, 128 * KIB, 192 * KIB]
    setup.storage.is_held = False
    for asked in setup.storage.under_way:
        asked.answered.set()
    assert await reading == list(range(SEGMENTS * RECORDS + 4))


async def test_next_segment_is_requested_before_the_current_one_ends(setup: Setup) -> None:
    setup.storage.is_held = True
    reading = asyncio.create_task(offsets(setup.task(prefetch=512 * KIB, piece=128 * KIB)))
    await eventually(lambda: {a.segment for a in setup.storage.under_way} == {0, RECORDS}, what="both segments")
    setup.storage.is_held = False
    for asked in setup.storage.under_way:
        asked.answered.set()
    assert await reading == list(range(SEGMENTS * RECORDS + 4))


@pytest.mark.parametrize("prefetch", [0, 1, 64 * KIB, 200 * KIB, 1024 * KIB, 64 << 20])
@pytest.mark.parametrize("piece", [64 * KIB, 100 * KIB, 4 << 20])
async def test_every_byte_is_requested_once_and_at_most_a_window_at_a_time(
    setup: Setup, prefetch: int, piece: int
) -> None:
    assert await offsets(setup.task(prefetch=prefetch, piece=piece)) == list(range(SEGMENTS * RECORDS + 4))
    assert sum(a.byte_range.size for a in setup.storage.asked) == setup.tiered_bytes
    assert setup.storage.most_bytes <= max(prefetch, 64 * KIB)
    assert setup.session.recorder.fetched_bytes == setup.tiered_bytes


async def test_reader_of_one_batch_requests_no_range_ahead(setup: Setup) -> None:
    task = setup.task(prefetch=512 * KIB)
    assert await offsets(task, 80, 81) == [80]
    assert len(setup.storage.asked) == 1
    setup.storage.asked.clear()
    await task.read(200, max_bytes=10, isolation=UNCOMMITTED)
    assert len(setup.storage.asked) == 1


async def test_read_ahead_grows_while_a_reader_continues(setup: Setup) -> None:
    task = setup.task(prefetch=512 * KIB)
    widths: list[int] = []
    setup.storage.is_held = True
    async with aclosing(task.batches(0, SEGMENTS * RECORDS, UNCOMMITTED)) as groups:
        while len(widths) < 4:
            step = asyncio.ensure_future(anext(groups))
            await eventually(lambda: bool(setup.storage.under_way), what="a range")
            await asyncio.sleep(0)
            widths.append(len(setup.storage.under_way))
            setup.storage.under_way[0].answered.set()
            await step
    assert widths[0] == 1
    assert widths == sorted(widths)
    assert widths[-1] >= 4
    assert setup.storage.under_way == [], "requests ahead ended with the reader"


async def test_ranges_end_at_the_ends_of_stored_chunks(setup: Setup) -> None:
    await offsets(setup.task(prefetch=256 * KIB, piece=128 * KIB), 45)
    first, *rest = [asked.byte_range for asked in setup.storage.asked]
    assert first.start % (128 * KIB)
    assert first.size == 128 * KIB
    size = setup.tiered_bytes // SEGMENTS
    assert {r.end + 1 for r in rest} == {128 * KIB, 256 * KIB, size}


async def test_failure_ahead_is_raised_at_its_offset_and_ends_requests_in_flight(setup: Setup) -> None:
    broken = RetriableRemoteStorageError("reset")
    setup.storage.failing = lambda asked: broken if asked.segment == 2 * RECORDS else None
    seen: list[int] = []
    with pytest.raises(RetriableRemoteStorageError):
        await collect(setup.task(prefetch=1024 * KIB), seen)
    assert seen == list(range(2 * RECORDS))
    assert setup.storage.under_way == []


async def test_read_after_a_failure_continues_at_the_next_offset(setup: Setup) -> None:
    failed: list[Asked] = []

    def once(asked: Asked) -> Exception | None:
        if asked.byte_range.start >= 128 * KIB and not failed:
            failed.append(asked)
            return RetriableRemoteStorageError("reset")
        return None

    setup.storage.failing = once
    seen: list[int] = []
    task = setup.task(prefetch=256 * KIB)
    with pytest.raises(RetriableRemoteStorageError):
        await collect(task, seen)
    seen += await offsets(task, seen[-1] + 1)
    assert seen == list(range(SEGMENTS * RECORDS + 4))


async def test_truncated_object_is_an_error_and_no_short_read(setup: Setup, tmp_path: Path) -> None:
    async def short(metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        return b""

    setup.storage.fetch_log_segment = short  # type: ignore[method-assign] # a store with a wrong end
    with pytest.raises(RemoteIntegrityError, match="ends at byte"):
        await offsets(setup.task(prefetch=256 * KIB))


async def test_early_exit_of_a_reader_ends_all_requests_in_flight(setup: Setup) -> None:
    records = setup.task(prefetch=512 * KIB).records(None, None, UNCOMMITTED)
    assert (await anext(records)).offset == 0
    setup.storage.is_held = True
    await records.aclose()
    assert setup.storage.under_way == []


async def test_reader_cancelled_in_its_wait_leaves_no_request_in_flight(setup: Setup) -> None:
    setup.storage.is_held = True
    reading = asyncio.create_task(offsets(setup.task(prefetch=256 * KIB)))
    await eventually(lambda: len(setup.storage.under_way) == 4, what="the window")
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()
    assert setup.storage.under_way == []
    assert setup.storage.cancelled == 4


async def test_read_ahead_does_not_grow_for_a_reader_that_does_not_wait(setup: Setup) -> None:
    task = setup.task(prefetch=1024 * KIB)
    reading = task.batches(None, None, UNCOMMITTED)
    async with aclosing(reading) as groups:
        async for _ in groups:
            await eventually(lambda: not setup.storage.under_way, what="everything that was asked for")
    assert sum(a.byte_range.size for a in setup.storage.asked) == setup.tiered_bytes
    assert setup.storage.most_bytes <= 8 * 64 * KIB, (
        "twice the first window of an eager reader: it waited for the first range"
    )
