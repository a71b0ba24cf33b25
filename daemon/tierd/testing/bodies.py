"""Bodies for the storage contracts: files with known content, and their checksums."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from tierd.kernels import crc32c
from tierd.model import CHECKSUM_BLOCK_BYTES, BlockChecksums, ByteRange
from tierd.remote import ChunkedBody, FileBody


def content_of(size_bytes: int, *, seed: int = 0) -> bytes:
    """Return incompressible bytes, the same for the same seed."""
    return random.Random(seed).randbytes(size_bytes)


def checksums_of(content: bytes) -> BlockChecksums:
    """Return the checksums that the check of a segment with this content takes."""
    starts = range(0, len(content), CHECKSUM_BLOCK_BYTES)
    return BlockChecksums(len(content), tuple(crc32c(content[at : at + CHECKSUM_BLOCK_BYTES]) for at in starts))


def file_body(path: Path, content: bytes, *, pace: Callable[[int], Awaitable[None]] | None = None) -> FileBody:
    """Write ``content`` to ``path`` and describe the whole of it."""
    path.write_bytes(content)
    whole = ByteRange.of_size(0, len(content)) if content else None
    return FileBody(path, whole, checksums_of(content), pace)


def chunked_body(chunks: Sequence[bytes], *, pace: Callable[[int], Awaitable[None]] | None = None) -> ChunkedBody:
    """Return a body of these chunks, with a size limit instead of the exact size."""

    async def iterate() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return ChunkedBody(iterate, sum(map(len, chunks)) + 1000, pace)


def chunks_of(content: bytes, size_bytes: int) -> list[bytes]:
    """Cut ``content`` into chunks."""
    return [content[at : at + size_bytes] for at in range(0, len(content), size_bytes)]
