"""A file as the chunks of a ``ChunkedBody``: each checked before it leaves, for stores that take parts from memory."""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import Executor

from tierd.kernels import crc32c
from tierd.model import CHECKSUM_BLOCK_BYTES, ByteRange
from tierd.remote.backends.streamed_file import opened
from tierd.remote.chunks import changed, unreadable
from tierd.remote.object_store import Body, ChunkedBody, FileBody


def as_chunks(body: Body, threads: Executor) -> ChunkedBody:
    """Return the same bytes as chunks; a file is read in ``threads``, one checksum block at a time.

    Iteration raises ``RemoteIntegrityError`` before it yields a block that is not what was checked.
    """
    if isinstance(body, ChunkedBody):
        return body
    if isinstance(body, bytes):
        return ChunkedBody(lambda: _one(body), len(body))
    return ChunkedBody(lambda: _blocks(body, threads), body.size, body.pace)


async def _one(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


async def _blocks(body: FileBody, threads: Executor) -> AsyncGenerator[bytes, None]:
    if body.byte_range is None:
        return
    async with opened(body.path, threads) as source:
        for position in range(body.byte_range.start, body.byte_range.end + 1, CHECKSUM_BLOCK_BYTES):
            size = min(CHECKSUM_BLOCK_BYTES, body.byte_range.end + 1 - position)
            reading = asyncio.get_running_loop().run_in_executor(threads, source.read, size, position)
            try:
                block = await reading
            except OSError as error:
                raise unreadable(body.path, error) from error
            _require_unchanged(body, ByteRange.of_size(position, size), block)
            yield block


def _require_unchanged(body: FileBody, block_range: ByteRange, block: bytes) -> None:
    index = block_range.start // CHECKSUM_BLOCK_BYTES
    if len(block) != body.checksums.block_size(index) or crc32c(block) != body.checksums.crc32c[index]:
        raise changed(body.path, block_range.start)
