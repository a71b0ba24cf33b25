"""ChunkedUploads: bodies that are made while they are sent, in parts that are gathered in memory."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

from tierd.model import ByteRange
from tierd.remote.backends.client_settings import PartLimits
from tierd.remote.backends.part_buffers import FilledPart, PartBuffer, PartBuffers, PartFilling
from tierd.remote.backends.parts import UploadPart
from tierd.remote.chunks import iterated
from tierd.remote.object_store import ChunkedBody

T = TypeVar("T")
U = TypeVar("U")


class PartUploads(Protocol[U]):
    """Uploads in parts, by a store that puts the parts together at the end."""

    def begun(self, key: str) -> AbstractAsyncContextManager[U]:
        """Begin an upload, to be completed inside; failed or cancelled, it is aborted."""

    async def send_bytes(self, upload: U, part: UploadPart, content: memoryview) -> str:
        """Send one part; return the tag that the store knows it by.

        ``content`` can be read until the call ends. What reads it after that uses a view of its own.
        """

    async def complete(self, upload: U, parts: Sequence[UploadPart], tags: Sequence[str]) -> None:
        """Make the object appear, unless its key exists."""


class ChunkedUploads(Generic[U]):
    """Fills buffers of ``part_size`` bytes, at most ``max_concurrency`` in memory over all uploads, and sends them.

    ``put_whole`` stores a body that has no more than one part; it may read the bytes until it ends.
    """

    def __init__(
        self,
        uploads: PartUploads[U],
        put_whole: Callable[[str, memoryview], Coroutine[object, object, None]],
        *,
        limits: PartLimits,
    ) -> None:
        self._uploads = uploads
        self._put_whole = put_whole
        self._buffers = PartBuffers(size_bytes=limits.part_size, count=limits.max_concurrency)

    async def put(self, key: str, body: ChunkedBody) -> None:
        """Create the object; failed or cancelled, a multipart upload is aborted and the chunks are closed.

        Raises:
            TierError: sending or completing the upload failed, or the chunks raised it.
        """
        with self._buffers.upload(), ExitStack() as held:
            async with iterated(body.chunks) as chunks:
                filling = PartFilling(chunks, pace=body.pace)
                buffer = await self._taken(held)
                first = await filling.fill(buffer)
                if first.is_last:
                    await _viewed(buffer, first.size_bytes, partial(self._put_whole, key))
                    return
                async with self._uploads.begun(key) as upload:
                    sent, tags = await self._send_all(key, upload, filling, (buffer, first), held)
                    await self._uploads.complete(upload, sent, tags)

    async def _send_all(
        self, key: str, upload: U, filling: PartFilling, first: tuple[PartBuffer, FilledPart], held: ExitStack
    ) -> tuple[list[UploadPart], list[str]]:
        """Send the part at hand, whose buffer is ``held``, and all others; return the parts and their entity tags."""
        buffer, filled = first
        parts: list[UploadPart] = []
        tasks: list[asyncio.Task[str]] = []
        position = 0
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    part = UploadPart(len(parts) + 1, ByteRange.of_size(position, filled.size_bytes), filled.crc32c)
                    send = partial(self._uploads.send_bytes, upload, part)
                    task = group.create_task(
                        _viewed(buffer, filled.size_bytes, send), name=f"upload {key} {part.number}"
                    )
                    task.add_done_callback(partial(_close, held.pop_all()))  # the task may end before it has begun
                    parts.append(part)
                    tasks.append(task)
                    position += filled.size_bytes
                    if filled.is_last:
                        break
                    buffer = await self._taken(held)
                    filled = await filling.fill(buffer)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return parts, [task.result() for task in tasks]

    async def _taken(self, held: ExitStack) -> PartBuffer:
        """Wait for a buffer, which ``held`` gives back."""
        buffer = await self._buffers.take()
        held.callback(self._buffers.give_back, buffer)
        return buffer


def _close(held: ExitStack, _: "asyncio.Task[str]") -> None:
    held.close()


async def _viewed(buffer: PartBuffer, size_bytes: int, send: Callable[[memoryview], Coroutine[object, object, T]]) -> T:
    """Send the first bytes of a buffer; afterwards the bytes cannot be read through the view that ``send`` got."""
    content = buffer.view(size_bytes)
    try:
        return await send(content)
    finally:
        with suppress(BufferError):  # a thread may hash it still, and the buffer is not used again
            content.release()
