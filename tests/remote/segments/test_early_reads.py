"""Ranges that were guessed: used where the guess was right, over where it was not."""

import asyncio

import pytest

from tests.fakes.eventually import eventually
from tierd.model import ByteRange
from tierd.remote.segments.early_reads import EarlyReads

GUESSED, OTHER = ByteRange(0, 9), ByteRange(10, 19)


class Source:
    """Answers a range with its first byte's number, when a test says so."""

    def __init__(self) -> None:
        self.asked: list[ByteRange] = []
        self.ended: list[ByteRange] = []
        self.answer = asyncio.Event()
        self.answer.set()

    async def read(self, _: str, byte_range: ByteRange) -> bytes:
        self.asked.append(byte_range)
        try:
            await self.answer.wait()
            return str(byte_range.start).encode()
        finally:
            self.ended.append(byte_range)


async def test_right_guess_is_asked_for_once_and_before_it_is_read() -> None:
    source = Source()
    async with EarlyReads(source.read, "key", [GUESSED]) as reads:
        await asyncio.sleep(0)
        assert source.asked == [GUESSED]
        assert await reads.read(GUESSED) == b"0"
    assert source.asked == [GUESSED]


async def test_wrong_guess_is_ended_and_the_right_range_is_asked_for() -> None:
    source = Source()
    source.answer.clear()
    async with EarlyReads(source.read, "key", [GUESSED]) as reads:
        await asyncio.sleep(0)
        reading = asyncio.create_task(reads.read(OTHER))
        await asyncio.sleep(0)
        source.answer.set()
        assert await reading == b"10"
    assert sorted(source.ended, key=lambda r: r.start) == [GUESSED, OTHER]


async def test_cancelled_reader_leaves_no_read_under_way() -> None:
    source = Source()
    source.answer.clear()

    async def read() -> None:
        async with EarlyReads(source.read, "key", [GUESSED, OTHER]) as reads:
            await reads.read(GUESSED)

    reading = asyncio.create_task(read())
    await eventually(lambda: len(source.asked) == 2, what="both ranges")
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()
    assert len(source.ended) == 2


async def test_failure_of_a_guess_is_raised_where_its_range_is_read() -> None:
    async def failing(_: str, byte_range: ByteRange) -> bytes:
        raise OSError(f"bytes {byte_range.start}")

    async with EarlyReads(failing, "key", [GUESSED]):
        await asyncio.sleep(0)
    with pytest.raises(OSError, match="bytes 0"):
        async with EarlyReads(failing, "key", [GUESSED]) as reads:
            await reads.read(GUESSED)
