"""BucketRows: metadata in memory, read from the bucket again and again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.app.endpoint.bucket_rows import BucketRows
from tierd.errors import RefusedError, RemoteStorageError
from tierd.metadata import Batch, KeyValueStore, MemoryKeyValueStore, Put


class Bucket:
    """Reading of a bucket that has one row; it takes ``seconds``, and fails while ``is_away``."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.value = b"1"
        self.is_away = False
        self.seconds = 1.0
        self.readings = 0

    async def fill(self, rows: KeyValueStore) -> None:
        self.readings += 1
        self.clock.advance(self.seconds)
        if self.is_away:
            raise RemoteStorageError("the store does not answer", remedy="wait")
        await rows.apply(Batch((Put("row", self.value),)))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@contextlib.asynccontextmanager
async def refreshing(bucket: Bucket) -> AsyncIterator[BucketRows]:
    first = MemoryKeyValueStore()
    await bucket.fill(first)
    rows = BucketRows(first, bucket.fill, clock=bucket.clock)
    task = asyncio.create_task(rows.refresh())
    try:
        await eventually(lambda: bucket.clock.sleeping == 1, what="the first pause")
        yield rows
    finally:
        task.cancel()
        await asyncio.wait({task})


async def pause(bucket: Bucket, seconds: float) -> None:
    bucket.clock.advance(seconds)
    await eventually(lambda: bucket.clock.sleeping == 1, what="the next pause")


async def test_rows_change_after_ten_minutes(clock: ManualClock) -> None:
    bucket = Bucket(clock)
    async with refreshing(bucket) as rows:
        bucket.value = b"2"
        await pause(bucket, 599)
        assert (await rows.get("row"), bucket.readings) == (b"1", 1)
        await pause(bucket, 1)
        assert (await rows.get("row"), bucket.readings) == (b"2", 2)
        assert await rows.get_many(["row", "none"]) == {"row": b"2"}
        assert await rows.scan("r") == [("row", b"2")]


async def test_bucket_that_does_not_answer_leaves_the_rows(clock: ManualClock) -> None:
    bucket = Bucket(clock)
    async with refreshing(bucket) as rows:
        bucket.is_away, bucket.value = True, b"2"
        await pause(bucket, 600)
        assert await rows.get("row") == b"1"
        bucket.is_away = False
        await pause(bucket, 600)
        assert await rows.get("row") == b"2"


async def test_tier_that_takes_long_to_read_is_read_seldom(clock: ManualClock) -> None:
    bucket = Bucket(clock)
    async with refreshing(bucket):
        bucket.seconds = 300.0
        await pause(bucket, 600)
        assert bucket.readings == 2
        await pause(bucket, 20 * 300 - 1)
        assert bucket.readings == 2
        await pause(bucket, 1)
        assert bucket.readings == 3


async def test_rows_read_from_a_bucket_refuse_a_write(clock: ManualClock) -> None:
    rows = BucketRows(MemoryKeyValueStore(), Bucket(clock).fill, clock=clock)
    with pytest.raises(RefusedError):
        await rows.apply(Batch((Put("row", b"1"),)))
    await rows.close()
