"""TransformedLog: a log file on its way to the store, read, checked, compressed and encrypted chunk by chunk."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from tierd.errors import RemoteIntegrityError
from tierd.files import open_to_read
from tierd.kernels import crc32c, crc32c_of_range
from tierd.model import BlockChecksums, ByteRange
from tierd.remote.chunks import ByteView, iterated, unreadable
from tierd.remote.object_store import ChunkedBody
from tierd.remote.transform.chunk_layout import ChunkLayout, StoredChunk, count_chunks
from tierd.remote.transform.transform import Threads

_AHEAD = 2
"""Chunks in the making while another one is sent, for each upload: that is what bounds its memory."""

_local = threading.local()  # a buffer for each thread: fresh memory for every chunk cost a third of the CPU (measured)
_MAX_BUFFER_BYTES = 16 << 20


class _Made(NamedTuple):
    stored: bytes
    chunk: StoredChunk


class ChunkEncoder(Protocol):
    """Codec of the chunks of one log."""

    @property
    def overhead_bytes(self) -> int:
        """Return the largest growth of a chunk in bytes."""

    def encode(self, content: ByteView, *, number: int, count: int) -> tuple[bytes, bool]:
        """Return the bytes to store for chunk ``number`` of ``count``, and True if they are compressed. Blocking."""


class TransformedLog:
    """One log and its transformation. Every iteration over its body gives the same bytes.

    Args:
        path: the log; opened for every chunk, so nothing is left open by an upload that is cancelled.
        checksums: of the log; a chunk that does not have its checksum is neither encrypted nor sent.
        chunk_size: original bytes per chunk.
        codec: transforms each chunk.
        threads: run the codec.
    """

    def __init__(
        self, path: Path, checksums: BlockChecksums, *, chunk_size: int, codec: ChunkEncoder, threads: Threads
    ) -> None:
        self._path = path
        self._checksums = checksums
        self._chunk_size = chunk_size
        self._codec = codec
        self._threads = threads
        self._count = count_chunks(checksums.size_bytes, chunk_size)
        self._made: dict[int, StoredChunk] = {}

    def body(self) -> ChunkedBody:
        """Return the body to hand to the store."""
        growth = self._count * self._codec.overhead_bytes
        return ChunkedBody(self._chunks, self._checksums.size_bytes + growth)

    async def layout(self) -> ChunkLayout:
        """Return the layout of the stored log; chunks that the store did not ask for are made now."""
        if len(self._made) < self._count:
            async with iterated(self._chunks) as chunks:
                async for _ in chunks:
                    pass
        made = tuple(self._made[number] for number in range(self._count))
        return ChunkLayout(self._checksums.size_bytes, self._chunk_size, made)

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield stored chunks in order, while the next two are made.

        Raises:
            RemoteIntegrityError: the file has changed since its check.
            RemoteStorageError: it cannot be read.
        """
        coming: deque[asyncio.Future[_Made]] = deque()
        try:
            for number in range(self._count + _AHEAD):
                if number < self._count:
                    coming.append(self._threads.submit(partial(self._make, number)))
                if number >= _AHEAD:
                    made = await coming[0]
                    coming.popleft()
                    self._made[number - _AHEAD] = made.chunk
                    yield made.stored
                    del made  # so that its memory serves for the next chunk
        finally:
            for future in coming:
                if not future.cancel() and not future.cancelled():
                    future.exception()  # retrieved, so that asyncio does not warn

    def _make(self, number: int) -> _Made:
        start = number * self._chunk_size
        byte_range = ByteRange(start, min(start + self._chunk_size, self._checksums.size_bytes) - 1)
        try:
            content = _read(self._path, byte_range)
        except OSError as error:
            raise unreadable(self._path, error) from error
        crc = crc32c_of_range(self._checksums, byte_range)
        if len(content) != byte_range.size or crc32c(content) != crc:
            raise RemoteIntegrityError(
                f"{self._path}: bytes {byte_range.start}-{byte_range.end} are not what was checked",
                remedy="the segment is read again",
            )
        stored, is_compressed = self._codec.encode(content, number=number, count=self._count)
        return _Made(stored, StoredChunk(len(stored), crc, is_compressed))


def _read(path: Path, byte_range: ByteRange) -> memoryview:
    """Return the bytes of ``byte_range``, fewer at the end of the file; they last until this thread reads again."""
    buffer: bytearray = _local.__dict__.get("buffer", b"")
    if len(buffer) < byte_range.size:
        buffer = bytearray(byte_range.size)
        if byte_range.size <= _MAX_BUFFER_BYTES:
            _local.buffer = buffer
    with open_to_read(path) as file:
        file.seek(byte_range.start)
        view = memoryview(buffer)[: byte_range.size]
        return view[: file.readinto(view)]
