"""LogStartKeeper: the log start in the bucket follows the row, is never above it, and no stale leader moves it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.interruption import CrashError, InterruptedKeyValueStore, InterruptedObjectStore, Interruption
from tests.tiering.removing.world import Process, World
from tierd.errors import (
    FencedError,
    RefusedError,
    RemoteFormatError,
    RemoteObjectRetainedError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.metadata import RECORD_IN_DOUBT
from tierd.model import ByteRange
from tierd.remote import LOG_START, Body, LogStartRecord, LogStartStorage, ObjectKeyFactory, StoredLogStart
from tierd.testing import cancel_at
from tierd.tiering.removing.log_start_keeper import INTERVAL_S, REFUSED_RETRY_S, is_of_later_leader, must_write

CLUSTER_ID = "dGllcmQtc3ludGhldGljLQ"


class CountingStore(MemoryObjectStore):
    """Store that counts calls about the log start, and may refuse to write it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.writes = 0
        self.error: TierError | None = None
        self.before_write: Callable[[], Awaitable[None]] | None = None

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        self.reads += 1
        return await super().get(key, byte_range)

    async def put(self, key: str, body: Body) -> None:
        if key.endswith("log-start.json"):
            await self._written()
        await super().put(key, body)

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        await self._written()
        await super().replace(key, content, previous=previous)

    async def _written(self) -> None:
        self.writes += 1
        if self.error is not None:
            raise self.error
        act, self.before_write = self.before_write, None
        if act is not None:
            await act()


async def recorded(world: World) -> int | None:
    """Return the log start in the bucket, None without a record."""
    stored = await LogStartStorage(world.objects, ObjectKeyFactory("", CLUSTER_ID)).read(world.partition)
    return None if stored is None or stored.record is None else stored.record.log_start_offset


async def led(world: World, leader_epoch: int = 0) -> Process:
    """Return a process that leads and has a segment in the tier."""
    process = world.process()
    await process.lead(leader_epoch)
    await process.metadata.ensure_ready(world.partition)
    if not process.view.segments:
        await process.add(0, 99, leader_epoch=leader_epoch)
    return process


async def raise_to(process: Process, offset: int) -> None:
    await process.metadata.advance_log_start_offset(process.world.partition, offset)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def world(tmp_path: Path, store: CountingStore) -> World:
    world = World(tmp_path)
    world.objects = store
    return world


async def test_store_is_not_called_while_the_log_start_is_0(world: World, store: CountingStore) -> None:
    process = await led(world)
    assert await process.log_starts.keep(world.partition) is None
    await raise_to(process, 0)
    assert await process.log_starts.keep(world.partition) is None
    assert (store.reads, store.writes) == (0, 0)


async def test_partition_without_any_segment_gets_no_record(world: World, store: CountingStore) -> None:
    process = world.process()
    await process.lead()
    await process.metadata.ensure_ready(world.partition)
    await raise_to(process, 50)
    assert await process.log_starts.keep(world.partition) is None
    assert (store.reads, store.writes) == (0, 0)


async def test_log_start_that_rises_is_written_once_and_not_read_again(world: World, store: CountingStore) -> None:
    process = await led(world)
    await raise_to(process, 50)
    for _ in range(3):
        assert await process.log_starts.keep(world.partition) is None
    assert await recorded(world) == 50
    later = world.process()
    await later.lead(1)
    await later.metadata.ensure_ready(world.partition)
    reads = store.reads
    assert await later.log_starts.keep(world.partition) is None
    assert (store.reads, store.writes) == (reads, 1)


async def test_log_start_that_rises_often_is_written_once_in_an_interval(world: World, store: CountingStore) -> None:
    process = await led(world)
    waits: list[float | None] = []
    for offset in range(1, 61):
        await raise_to(process, offset)
        waits.append(await process.log_starts.keep(world.partition))
        world.clock.advance(INTERVAL_S / 30)
    assert store.writes == 2
    assert waits[0] is None
    assert waits[1] == pytest.approx(INTERVAL_S * 29 / 30)
    world.clock.advance(INTERVAL_S)
    assert await process.log_starts.keep(world.partition) is None
    assert await recorded(world) == 60


async def test_stale_leader_does_not_move_the_log_start(world: World) -> None:
    stale = await led(world)
    await raise_to(stale, 10)
    new = await led(world, 1)
    await raise_to(new, 50)
    await new.log_starts.keep(world.partition)
    with pytest.raises(FencedError):
        await stale.log_starts.keep(world.partition)
    assert await recorded(world) == 50


async def test_leader_that_is_replaced_during_its_write_is_fenced(world: World, store: CountingStore) -> None:
    stale = await led(world)
    await raise_to(stale, 10)
    await stale.log_starts.keep(world.partition)
    world.clock.advance(INTERVAL_S)
    await raise_to(stale, 20)

    async def replace_leader() -> None:
        new = await led(world, 1)
        await raise_to(new, 50)
        await new.log_starts.keep(world.partition)

    store.before_write = replace_leader
    with pytest.raises(FencedError):
        await stale.log_starts.keep(world.partition)
    assert await recorded(world) == 50


async def test_record_of_a_leader_later_than_the_metadata_is_kept(world: World) -> None:
    process = await led(world, 3)
    later = LogStartRecord(log_start_offset=70, leader_epoch=4, broker_id=2, written_ms=0)
    await process.storage.log_starts.write(world.partition, later, previous=None)
    await raise_to(process, 50)
    assert await process.log_starts.keep(world.partition) == INTERVAL_S
    assert await recorded(world) == 70


async def test_damaged_record_is_replaced(world: World) -> None:
    process = await led(world)
    await world.objects.put(ObjectKeyFactory("", CLUSTER_ID).log_start(world.partition), b"{}")
    await raise_to(process, 50)
    assert await process.log_starts.keep(world.partition) is None
    assert await recorded(world) == 50


async def test_oversized_record_is_kept_and_checked_again_in_an_hour(world: World, store: CountingStore) -> None:
    process, key = await led(world), ObjectKeyFactory("", CLUSTER_ID).log_start(world.partition)
    await store.put(key, b" " * (LOG_START.max_bytes + 1))
    await raise_to(process, 50)
    assert await process.log_starts.keep(world.partition) == REFUSED_RETRY_S
    await store.delete(key)
    world.clock.advance(REFUSED_RETRY_S)
    assert await process.log_starts.keep(world.partition) is None
    assert await recorded(world) == 50


@pytest.mark.parametrize("error", [RemoteObjectRetainedError("kept"), RemoteFormatError("of a later tierd")])
async def test_record_that_the_store_refuses_to_replace_is_tried_again_in_an_hour(
    world: World, store: CountingStore, error: TierError
) -> None:
    process = await led(world)
    store.error = error
    await raise_to(process, 50)
    assert await process.log_starts.keep(world.partition) == REFUSED_RETRY_S
    assert await process.log_starts.keep(world.partition) == REFUSED_RETRY_S
    assert store.writes == 1
    store.error = None
    world.clock.advance(REFUSED_RETRY_S)
    assert await process.log_starts.keep(world.partition) is None
    assert await recorded(world) == 50


async def test_write_that_failed_is_tried_again_at_once(world: World, store: CountingStore) -> None:
    process = await led(world)
    store.error = RetriableRemoteStorageError("away")
    await raise_to(process, 50)
    with pytest.raises(RetriableRemoteStorageError):
        await process.log_starts.keep(world.partition)
    store.error = None
    assert await process.log_starts.keep(world.partition) is None
    assert await recorded(world) == 50


async def test_log_start_is_lowered_in_the_bucket_before_the_row(world: World) -> None:
    process = await led(world)
    await raise_to(process, 50)
    await process.log_starts.keep(world.partition)
    async with process.log_starts.lowered(world.partition, 20):
        assert await recorded(world) == 20
        assert process.view.log_start_offset == 50
        assert await process.log_starts.keep(world.partition) is not None, "it waits until the row is lowered"
        with pytest.raises(RefusedError):
            async with process.log_starts.lowered(world.partition, 10):
                pass
        await process.metadata.lower_log_start_offset(world.partition, 20)
    world.clock.advance(INTERVAL_S)
    assert await process.log_starts.keep(world.partition) is None
    assert await recorded(world) == 20


async def test_abandoned_lowering_is_undone(world: World) -> None:
    process = await led(world)
    await raise_to(process, 50)
    await process.log_starts.keep(world.partition)
    with contextlib.suppress(asyncio.CancelledError):
        async with process.log_starts.lowered(world.partition, 20):
            raise asyncio.CancelledError
    assert await recorded(world) == 20
    row = process.view.row
    assert row is not None
    assert row.recorded_log_start == RECORD_IN_DOUBT
    world.clock.advance(INTERVAL_S)
    assert await process.log_starts.keep(world.partition) is None
    assert await recorded(world) == 50


async def test_deleted_partition_gets_no_new_record(world: World, store: CountingStore) -> None:
    process = await led(world)
    await raise_to(process, 50)
    await process.log_starts.keep(world.partition)
    await process.log_starts.remove(world.partition)
    assert await recorded(world) is None


async def test_cancellation_at_any_wait_is_repaired_by_the_next_call(tmp_path: Path) -> None:
    suspension, was_cancelled = 0, True
    while was_cancelled:
        suspension += 1
        world = World(tmp_path / str(suspension))
        process = await led(world)
        await raise_to(process, 50)
        was_cancelled = await cancel_at(suspension, lambda: process.log_starts.keep(world.partition))  # noqa: B023
        assert (await recorded(world)) in {None, 50}
        assert await process.log_starts.keep(world.partition) is None
        assert await recorded(world) == 50
        row = process.view.row
        assert row is not None
        assert row.is_log_start_recorded
    assert suspension > 2, "it waits for the row before and after the object"


class Story:
    """History of leaders that start, die at any call, and move the log start."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.epoch = 0

    async def leader(self, interruption: Interruption | None = None) -> Process:
        world = self.world
        if interruption is None:
            process = world.process()
        else:
            objects = InterruptedObjectStore(world.objects, interruption)
            process = world.process(objects=objects, rows=InterruptedKeyValueStore(world.rows, interruption))
        await process.lead(self.epoch)
        await process.metadata.ensure_ready(world.partition)
        return process

    async def step(self, move: int, *, dies_at: int | None, is_new_epoch: bool) -> None:
        self.epoch += is_new_epoch
        self.world.clock.advance(INTERVAL_S)
        with contextlib.suppress(CrashError):
            process = await self.leader(Interruption(at=dies_at))
            partition, start = self.world.partition, process.view.log_start_offset or 0
            if move >= 0:
                await process.metadata.advance_log_start_offset(partition, start + move)
            else:
                lower = max(0, start + move)
                async with process.log_starts.lowered(partition, lower):
                    await process.metadata.lower_log_start_offset(partition, lower)
            await process.log_starts.keep(partition)
        assert (await recorded(self.world) or 0) <= await self.stored(), "a rebuild would hide readable records"

    async def stored(self) -> int:
        return (await self.leader()).view.log_start_offset or 0

    async def end(self) -> None:
        self.world.clock.advance(INTERVAL_S)
        process = await self.leader()
        await process.log_starts.keep(self.world.partition)
        assert (await recorded(self.world) or 0) == (process.view.log_start_offset or 0)


steps = st.tuples(st.integers(-60, 60), st.none() | st.integers(1, 16), st.booleans())


@settings(max_examples=150)
@given(st.lists(steps, max_size=8))
def test_record_is_at_most_the_row_at_each_step_and_equal_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[int, int | None, bool]]
) -> None:
    async def run() -> None:
        told = Story(tmp_path_factory.getbasetemp())
        await (await told.leader()).add(0, 99)
        for move, dies_at, is_new_epoch in story:
            await told.step(move, dies_at=dies_at, is_new_epoch=is_new_epoch)
        await told.end()

    asyncio.run(run())


stored_records = st.none() | st.builds(
    lambda start, epoch, is_damaged: StoredLogStart(
        b"",
        None if is_damaged else LogStartRecord(log_start_offset=start, leader_epoch=epoch, broker_id=1, written_ms=0),
    ),
    st.integers(0, 5),
    st.integers(0, 3),
    st.booleans(),
)


@given(stored_records, st.integers(0, 5), st.integers(0, 3))
def test_decision_to_write_depends_on_epoch_and_offset(stored: StoredLogStart | None, start: int, epoch: int) -> None:
    wanted = LogStartRecord(log_start_offset=start, leader_epoch=epoch, broker_id=1, written_ms=9)
    present = None if stored is None else stored.record
    if present is not None and present.leader_epoch > epoch:
        assert is_of_later_leader(stored, wanted)
        assert not must_write(stored, wanted)
        return
    after = wanted.log_start_offset if must_write(stored, wanted) else present.log_start_offset if present else 0
    assert after == start, "the log start in the bucket is that of the leader"
    if present is not None and present.log_start_offset == start:
        assert not must_write(stored, wanted)
