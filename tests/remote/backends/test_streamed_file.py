import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tierd.errors import RemoteIntegrityError, RemoteStorageError
from tierd.model import ByteRange
from tierd.remote.backends.streamed_file import STEP_BYTES, BytesBody, SourceFile, StreamedBody
from tierd.remote.deadlines import deadline
from tierd.testing import content_of


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SourceFile]:
    path = tmp_path / "segment"
    path.write_bytes(content_of(3 * STEP_BYTES + 5))
    source = SourceFile(path)
    yield source
    source.close()


async def sent(source: SourceFile, byte_range: ByteRange, threads: ThreadPoolExecutor) -> list[bytes]:
    async with deadline("test", 10) as running:
        body = StreamedBody(source, byte_range, threads=threads, running=running, pace=None)
        return [step async for step in body]


@pytest.mark.parametrize(("start", "size"), [(0, 1), (0, 3 * STEP_BYTES + 5), (STEP_BYTES, STEP_BYTES), (7, 9)])
async def test_a_range_is_sent_in_steps(source: SourceFile, threads: ThreadPoolExecutor, start: int, size: int) -> None:
    steps = await sent(source, ByteRange.of_size(start, size), threads)
    assert b"".join(steps) == content_of(3 * STEP_BYTES + 5)[start : start + size]
    assert all(len(step) <= STEP_BYTES for step in steps)


async def rest_of(steps: AsyncIterator[bytes | memoryview]) -> bytes:
    return b"".join([step async for step in steps])


@pytest.mark.parametrize("in_memory", [False, True])
async def test_withheld_body_never_hands_over_its_last_byte(
    source: SourceFile, threads: ThreadPoolExecutor, *, in_memory: bool
) -> None:
    content = content_of(3 * STEP_BYTES + 5)
    async with deadline("test", 10) as running:
        whole = ByteRange.of_size(0, len(content))
        streamed = StreamedBody(source, whole, threads=threads, running=running, pace=None)
        body = BytesBody(content) if in_memory else streamed
        steps: AsyncIterator[bytes | memoryview] = aiter(body)
        await anext(steps)
        assert body.withhold()
        with pytest.raises(asyncio.CancelledError):
            await rest_of(steps)


@pytest.mark.parametrize("in_memory", [False, True])
async def test_body_whose_last_byte_was_handed_over_cannot_be_withheld(
    source: SourceFile, threads: ThreadPoolExecutor, *, in_memory: bool
) -> None:
    content = content_of(3 * STEP_BYTES + 5)
    async with deadline("test", 10) as running:
        whole = ByteRange.of_size(0, len(content))
        streamed = StreamedBody(source, whole, threads=threads, running=running, pace=None)
        body = BytesBody(content) if in_memory else streamed
        assert await rest_of(aiter(body)) == content
        assert not body.withhold()


async def test_source_that_ends_early_is_reported_with_its_position(
    source: SourceFile, threads: ThreadPoolExecutor
) -> None:
    with pytest.raises(RemoteIntegrityError, match=f"ends at byte {3 * STEP_BYTES + 5}, 5 too early"):
        await sent(source, ByteRange.of_size(0, 3 * STEP_BYTES + 10), threads)


async def test_a_disk_that_fails_is_named(
    source: SourceFile, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(RemoteStorageError, match=r"cannot read .*segment: Input/output error"):
        await sent(source, ByteRange(0, 9), threads)


async def test_a_file_is_not_closed_under_a_running_read(
    source: SourceFile, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, reading, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    read = os.pread

    def slow_read(file: int, size: int, position: int) -> bytes:
        loop.call_soon_threadsafe(reading.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return read(file, size, position)

    monkeypatch.setattr(os, "pread", slow_read)
    running = loop.run_in_executor(threads, source.read, 10, 0)
    await reading.wait()
    source.close()
    source.close()
    go_on.set()
    assert await running == content_of(3 * STEP_BYTES + 5)[:10]
    assert source.read(10, 0) == b"", "it is closed now"
