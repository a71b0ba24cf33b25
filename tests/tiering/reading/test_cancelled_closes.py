"""Closes of readers that are cancelled at every await: nothing goes on, and nobody misses an error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.left_tasks import nothing_left
from tests.fakes.remote_segments import PARTITION, segment
from tests.fakes.storage_manager import UnusedStorage
from tierd.errors import RetriableRemoteStorageError
from tierd.model import ByteRange, IsolationLevel, RemoteLogSegmentMetadata
from tierd.remote.segments.early_reads import EarlyReads
from tierd.tasks import drop_task, wait_all
from tierd.testing import cancel_at
from tierd.tiering.reading.kept_readers import KeptReaders, ReaderPlace
from tierd.tiering.reading.read_ahead import ReadAhead, ReadAheadLimits, ReadAheadWindow
from tierd.tiering.reading.read_session import ReadSession
from tierd.tiering.reading.remote_reader import SMALLEST_WINDOW_BYTES, RemoteSegmentReader

SIZE = 4 * SMALLEST_WINDOW_BYTES
PLACES = [ReaderPlace(PARTITION, offset, IsolationLevel.READ_UNCOMMITTED) for offset in range(3)]


class DyingStore(UnusedStorage):
    """``RemoteStorageManager`` that does not answer; its calls take a while to end, and fail then."""

    def __init__(self) -> None:
        self.under_way = 0

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        return await self.get("log", byte_range)

    async def get(self, key: str, byte_range: ByteRange) -> bytes:
        del key, byte_range
        self.under_way += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(3):
                await asyncio.sleep(0)
            raise RetriableRemoteStorageError("the connection broke") from None
        finally:
            self.under_way -= 1
        raise AssertionError("nobody sets the event")


class ReadingSession:
    """``ReadSession`` with reads ahead under way."""

    def __init__(self, store: DyingStore) -> None:
        self._reading = [asyncio.create_task(store.get("log", ByteRange(at, at))) for at in range(2)]

    def abandon(self) -> "list[asyncio.Task[bytes]]":
        for each in self._reading:
            drop_task(each)
        return self._reading

    async def close(self) -> None:
        await wait_all(self.abandon())


def session(store: DyingStore) -> ReadSession:
    return cast("ReadSession", ReadingSession(store))


Close = Callable[[], Awaitable[None]]


async def segment_reader(store: DyingStore) -> Close:
    reader = RemoteSegmentReader(store, segment(0, 9, size_bytes=SIZE), position=0, first_bytes=1, piece_bytes=1)
    while reader.begin():
        pass
    return reader.close


def read_ahead(store: DyingStore) -> ReadAhead:
    limits = ReadAheadLimits(first_bytes=1, piece_bytes=SMALLEST_WINDOW_BYTES, ahead_bytes=SIZE)
    ahead = ReadAhead(store, limits, on_open=lambda: None, on_bytes=lambda _: None)
    for start in (0, 10, 20):
        ahead.begin(ReadAheadWindow(segment(start, start + 9, size_bytes=SIZE), start + 10), 0).begin()
    return ahead


async def readers_ahead(store: DyingStore) -> Close:
    return read_ahead(store).close


async def readers_before_another(store: DyingStore) -> Close:
    ahead, wanted = read_ahead(store), segment(30, 39, size_bytes=SIZE)

    async def seek_and_close() -> None:
        try:
            await ahead.current(30, wanted, wanted_from=30)
        finally:
            await ahead.close()

    return seek_and_close


async def kept_readers(store: DyingStore) -> Close:
    kept = KeptReaders(capacity=3, clock=FakeClock(), idle_s=3600)
    for place in PLACES:
        await kept.keep(place, session(store))
    return kept.close


async def surplus_of_kept_readers(store: DyingStore) -> Close:
    kept = KeptReaders(capacity=3, clock=FakeClock())
    for place in PLACES:
        await kept.keep(place, session(store))
    kept._capacity = 1

    async def keep_and_close() -> None:
        try:
            await kept.keep(PLACES[1], session(store))
        finally:
            await kept.close()

    return keep_and_close


async def reader_for_closed_ones(store: DyingStore) -> Close:
    kept = KeptReaders(capacity=3, clock=FakeClock())
    await kept.close()
    late = session(store)
    return lambda: kept.keep(PLACES[0], late)


async def early_reads(store: DyingStore) -> Close:
    reads = EarlyReads(store.get, "key", [ByteRange(0, 9), ByteRange(10, 19)])
    await reads.__aenter__()
    return reads.__aexit__


@pytest.mark.parametrize(
    "begin",
    [
        segment_reader,
        readers_ahead,
        readers_before_another,
        kept_readers,
        surplus_of_kept_readers,
        reader_for_closed_ones,
        early_reads,
    ],
)
async def test_close_that_is_cancelled_at_any_await_leaves_nothing_under_way(
    begin: Callable[[DyingStore], Awaitable[Close]],
) -> None:
    suspension, was_cancelled = 0, True
    while was_cancelled:
        suspension += 1
        store = DyingStore()
        with nothing_left():
            close = await begin(store)
            await asyncio.sleep(0)
            assert store.under_way

            async def closed(close: Close = close) -> None:
                await close()

            was_cancelled = await cancel_at(suspension, closed)
            assert store.under_way == 0
            del close, closed
    assert suspension > 1
