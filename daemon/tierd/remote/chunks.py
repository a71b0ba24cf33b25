"""Chunks of bodies: closed in time, measured, or gathered into parts of one size; faults of local files."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tierd.errors import RemoteIntegrityError, RemoteStorageError
from tierd.kernels import crc32c, crc32c_of_range
from tierd.remote.object_store import Body, ChunkedBody, FileBody

ByteView: TypeAlias = bytes | memoryview

_SLICE_BYTES = 1 << 20


class Measured(NamedTuple):
    """Number of bytes, and their CRC-32C."""

    size_bytes: int
    crc32c: int


@asynccontextmanager
async def iterated(chunks: Callable[[], AsyncIterator[bytes]]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Give a new iterator over the chunks; it is closed at the end, also when the iteration stops early."""
    iterator = chunks()
    try:
        yield iterator
    finally:
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()


async def measured(body: Body) -> Measured:
    """Return size and checksum of the whole body; chunks are made once more for it."""
    if isinstance(body, bytes):
        return Measured(len(body), crc32c(body))
    if isinstance(body, FileBody):
        return Measured(body.size, crc32c_of_range(body.checksums, body.byte_range) if body.byte_range else 0)
    size, crc = 0, 0
    async with iterated(body.chunks) as chunks:
        async for chunk in chunks:
            size, crc = size + len(chunk), crc32c(chunk, crc)
    return Measured(size, crc)


class GatheredPart(NamedTuple):
    """One part of a body, and whether it is the last one."""

    content: bytes
    is_last: bool


async def gathered(body: ChunkedBody, part_size: int) -> AsyncGenerator[GatheredPart, None]:
    """Gather chunks of any size into parts of ``part_size`` bytes.

    The last part may be shorter, and a single part may be empty. The chunks of one part and one chunk more are in
    memory, and beside them the part itself until it is joined. Each byte is copied once. The caller closes the
    generator when it stops early.
    """
    pieces: list[memoryview] = []
    left = part_size
    async with iterated(body.chunks) as chunks:
        async for chunk in chunks:
            if chunk and body.pace is not None:
                await body.pace(len(chunk))
            rest = memoryview(chunk)
            while len(rest) > left:  # more than fits: so this part is not the last
                pieces.append(rest[:left])
                rest, left = rest[left:], part_size
                yield GatheredPart(_joined(pieces), is_last=False)
            if rest:
                pieces.append(rest)
                left -= len(rest)
    yield GatheredPart(_joined(pieces), is_last=True)


def _joined(pieces: list[memoryview]) -> bytes:
    """Return the pieces as one, and empty the list, so that their chunks do not stay in memory with the part."""
    part = b"".join(pieces)
    pieces.clear()
    return part


async def sliced(content: ByteView) -> AsyncGenerator[memoryview, None]:
    """Yield views of bytes at hand in steps that do not hold up the event loop while they are sent."""
    view = memoryview(content)
    for position in range(0, len(content), _SLICE_BYTES):
        yield view[position : position + _SLICE_BYTES]


def changed(path: Path, position: int) -> RemoteIntegrityError:
    """Return the error for a file with other bytes than were checked, in the checksum block at ``position``."""
    return RemoteIntegrityError(
        f"{path} changed after it was checked, in the 1 MiB from byte {position} on",
        remedy="nothing was stored; the segment is read and checked again",
    )


def unreadable(path: Path, error: OSError) -> RemoteStorageError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return RemoteIntegrityError(f"{path} is gone since it was checked", remedy="the partition is looked at again")
    return RemoteStorageError(
        f"cannot read {path}: {error.strerror or error}", remedy=f"check the disk that holds {path}"
    )
