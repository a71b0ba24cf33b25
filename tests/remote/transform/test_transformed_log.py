import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from tests.fakes.transforms import mixed_content
from tierd.errors import RemoteIntegrityError, RemoteStorageError
from tierd.model import ByteRange
from tierd.remote.chunks import iterated
from tierd.remote.transform.binding import SegmentBinding
from tierd.remote.transform.cipher import SegmentCipher
from tierd.remote.transform.codec import ChunkCodec
from tierd.remote.transform.transform import Threads
from tierd.remote.transform.transformed_log import TransformedLog
from tierd.testing import cancel_at, checksums_of

T = TypeVar("T")

MIB = 1 << 20
BINDING = SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 10, 19)
CONTENT = mixed_content(5 * MIB + 17)


class Recording(Threads):
    """Remembers how many calls were begun and not waited for."""

    def __init__(self) -> None:
        super().__init__(2)
        self.submitted = 0

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        self.submitted += 1
        return super().submit(call)


def log_of(
    folder: Path, content: bytes = CONTENT, *, level: int | None = 3, threads: Threads | None = None
) -> TransformedLog:
    path = folder / "a.log"
    path.write_bytes(content)
    codec = ChunkCodec(level, SegmentCipher(bytes(32), BINDING))
    return TransformedLog(path, checksums_of(content), chunk_size=MIB, codec=codec, threads=threads or Threads(2))


async def stored(log: TransformedLog) -> list[bytes]:
    async with iterated(log.body().chunks) as chunks:
        return [chunk async for chunk in chunks]


async def test_every_iteration_gives_the_same_bytes(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    first = await stored(log)
    assert await stored(log) == first
    layout = await log.layout()
    assert [chunk.size_bytes for chunk in layout.chunks] == list(map(len, first))
    assert {chunk.is_compressed for chunk in layout.chunks} == {True, False}
    assert sum(map(len, first)) <= log.body().max_size_bytes


async def test_body_without_transformation_has_the_bytes_of_the_file(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    chunks, layout = await stored(log), await log.layout()
    reader = ChunkCodec(None, SegmentCipher(bytes(32), BINDING))
    decoded = [
        reader.decode(piece, chunk, number=n, count=len(chunks), size_bytes=layout.original_range(n).size)
        for n, (piece, chunk) in enumerate(zip(chunks, layout.chunks, strict=True))
    ]
    assert b"".join(decoded) == CONTENT
    assert layout.chunks_of(ByteRange(0, len(CONTENT) - 1)) == range(6)


async def test_an_empty_log_has_no_chunks(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"")
    assert await stored(log) == []
    assert (await log.layout()).chunks == ()


async def test_layout_makes_chunks_that_were_not_iterated_over(tmp_path: Path) -> None:
    assert len((await log_of(tmp_path).layout()).chunks) == 6


async def test_only_two_chunks_are_made_ahead(tmp_path: Path) -> None:
    threads = Recording()
    log = log_of(tmp_path, threads=threads)
    async with iterated(log.body().chunks) as chunks:
        for taken in range(1, 4):
            await anext(chunks)
            assert threads.submitted == taken + 2
    threads.close()


@pytest.mark.parametrize("change", [b"?" + CONTENT[1:], CONTENT[:-1], b""])
async def test_a_file_that_is_not_what_was_checked_is_not_sent(tmp_path: Path, change: bytes) -> None:
    log = log_of(tmp_path)
    (tmp_path / "a.log").write_bytes(change)
    with pytest.raises(RemoteIntegrityError, match="not what was checked"):
        await stored(log)


async def test_file_that_is_gone_or_unreadable_is_named(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    (tmp_path / "a.log").unlink()
    with pytest.raises(RemoteIntegrityError, match="is gone"):
        await stored(log)
    (tmp_path / "a.log").mkdir()
    with pytest.raises(RemoteStorageError, match="cannot read"):
        await stored(log)


async def test_iteration_after_a_cancellation_at_any_await_gives_the_same_bytes(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    whole = await stored(log)
    suspension = 1
    while await cancel_at(suspension, lambda: stored(log)):
        suspension += 1
    assert suspension > 1
    assert await stored(log) == whole


async def test_iteration_that_is_left_early_leaves_no_failure_unretrieved(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    loop = asyncio.get_running_loop()
    unseen: list[object] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    async with iterated(log.body().chunks) as chunks:
        await anext(chunks)
        (tmp_path / "a.log").unlink()
    assert len((await log_of(tmp_path).layout()).chunks) == 6
    assert unseen == []
