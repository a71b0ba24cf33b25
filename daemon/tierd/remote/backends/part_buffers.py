"""PartBuffers: memory for the parts of uploads, used again for later parts; PartFilling: chunks copied into it.

Fresh memory costs more CPU than the copy into it. A buffer that a request may still read must not be filled again, also
where the request failed or was cancelled. So a buffer is used again only if no view of it is left anywhere.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final, NamedTuple

from tierd.kernels import crc32c

_STEP_BYTES: Final = 1 << 20  # copied while its CRC-32C has it in the processor's cache
KEPT_S: Final = 1.0
"""Longest time for which buffers are kept without an upload: segments of a backlog follow each other sooner."""


class PartBuffer:
    """Memory for one part. The kernel provides its pages when they are first written."""

    def __init__(self, size_bytes: int) -> None:
        self._memory = mmap(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)

    def __len__(self) -> int:
        return len(self._memory)

    def write(self, position: int, content: memoryview) -> None:
        """Copy ``content`` to ``position``.

        Raises:
            IndexError: it does not fit.
        """
        self._memory[position : position + len(content)] = content

    def view(self, size_bytes: int) -> memoryview:
        """Return a view of the first bytes, for reading only. The buffer is not used again before the view is gone."""
        with memoryview(self._memory) as whole:
            return whole[:size_bytes].toreadonly()

    def is_viewed(self) -> bool:
        """Return True while a view of the buffer, or a slice of one, is left: the interpreter counts them."""
        try:
            self._memory.resize(len(self._memory))  # to the same size: refused while there are views
        except BufferError:
            return True
        return False


class PartBuffers:
    """Buffers for the parts of all uploads of one store, at most ``count`` of them taken at a time.

    Buffers that were given back are kept for later parts, until there was no upload for a second. Taken and kept
    buffers together are at most ``count``. A buffer with views is not kept; its memory lasts until the views are gone.
    """

    def __init__(self, *, size_bytes: int, count: int) -> None:
        self._size_bytes = size_bytes
        self._places = asyncio.Semaphore(count)
        self._uploads = 0
        self._kept: list[PartBuffer] = []
        self._release: asyncio.TimerHandle | None = None  # invariant: None while there are uploads

    @contextmanager
    def upload(self) -> Iterator[None]:
        """Keep buffers inside the context, which is one upload, and for a second after the last upload."""
        if self._release is not None:
            self._release.cancel()
            self._release = None
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1
            if not self._uploads:
                self._release = asyncio.get_running_loop().call_later(KEPT_S, self._kept.clear)

    async def take(self) -> PartBuffer:
        """Wait until fewer than ``count`` buffers are taken, and return one of any content; to be given back."""
        await self._places.acquire()
        try:
            return self._kept.pop() if self._kept else PartBuffer(self._size_bytes)
        except BaseException:  # there is no memory
            self._places.release()
            raise

    def give_back(self, buffer: PartBuffer) -> None:
        """End the use of a buffer that was taken."""
        try:
            if self._uploads and not buffer.is_viewed():
                self._kept.append(buffer)
        finally:
            self._places.release()


class FilledPart(NamedTuple):
    """Size and checksum of one part in a buffer.

    Attributes:
        size_bytes: of the part, from the beginning of the buffer.
        crc32c: of the chunks before they were copied.
        is_last: True if the body has no more bytes.
    """

    size_bytes: int
    crc32c: int
    is_last: bool


class PartFilling:
    """Chunks of one body, of any size, copied into one buffer after the other. Each byte is copied once."""

    def __init__(self, chunks: AsyncIterator[bytes], *, pace: Callable[[int], Awaitable[None]] | None) -> None:
        """``pace`` is awaited with the size of each chunk before the chunk is used."""
        self._chunks = chunks
        self._pace = pace
        self._rest = memoryview(b"")  # of the chunk at hand

    async def fill(self, buffer: PartBuffer) -> FilledPart:
        """Fill the buffer; only the last part of a body may be shorter than it, and only a single part is empty.

        Raises:
            TierError: the chunks raised it.
        """
        size, crc = 0, 0
        while True:
            size, crc = self._copied(buffer, size, crc)
            if self._rest:
                return FilledPart(size, crc, is_last=False)
            if not await self._advance():
                return FilledPart(size, crc, is_last=True)

    def _copied(self, buffer: PartBuffer, size: int, crc: int) -> tuple[int, int]:
        """Copy what fits of the chunk at hand behind ``size`` bytes; return size and CRC-32C of the part so far."""
        while self._rest and size < len(buffer):
            step = self._rest[: min(_STEP_BYTES, len(buffer) - size)]
            crc = crc32c(step, crc)
            buffer.write(size, step)
            size += len(step)
            self._rest = self._rest[len(step) :] or memoryview(b"")  # not an empty view, which would keep the chunk
        return size, crc

    async def _advance(self) -> bool:
        """Take the next chunk at hand; return False if there is none."""
        chunk = await anext(self._chunks, None)
        if chunk is None:
            return False
        if self._pace is not None and chunk:
            await self._pace(len(chunk))
        self._rest = memoryview(chunk)
        return True
