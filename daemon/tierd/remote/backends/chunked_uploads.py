"""ChunkedUploads: bodies that are made while they are sent, in parts that are gathered in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Generic, Protocol, TypeVar

from tierd.kernels import crc32c
from tierd.model import ByteRange
from tierd.remote.backends.client_settings import PartLimits
from tierd.remote.backends.parts import UploadPart
from tierd.remote.chunks import GatheredPart, gathered
from tierd.remote.object_store import ChunkedBody

U = TypeVar("U")


class PartUploads(Protocol[U]):
    """Uploads in parts, by a store that puts the parts together at the end."""

    def begun(self, key: str) -> AbstractAsyncContextManager[U]:
        """Begin an upload, to be completed inside; failed or cancelled, it is aborted."""

    async def send_bytes(self, upload: U, part: UploadPart, content: bytes) -> str:
        """Send one part; return the tag that the store knows it by."""

    async def complete(self, upload: U, parts: Sequence[UploadPart], tags: Sequence[str]) -> None:
        """Make the object appear, unless its key exists."""


class ChunkedUploads(Generic[U]):
    """Gathers parts of ``part_size`` bytes, at most ``max_concurrency`` in memory over all uploads, and sends them.

    ``put_whole`` stores a body that has no more than one part.
    """

    def __init__(
        self,
        uploads: PartUploads[U],
        put_whole: Callable[[str, bytes], Awaitable[None]],
        *,
        limits: PartLimits,
    ) -> None:
        self._uploads = uploads
        self._put_whole = put_whole
        self._part_size = limits.part_size
        self._places = asyncio.Semaphore(limits.max_concurrency)

    async def put(self, key: str, body: ChunkedBody) -> None:
        """Create the object; failed or cancelled, a multipart upload is aborted and the chunks are closed.

        Raises:
            TierError: sending or completing the upload failed, or the chunks raised it.
        """
        async with aclosing(gathered(body, self._part_size)) as parts, AsyncExitStack() as place:
            await place.enter_async_context(self._places)
            first = await anext(parts)
            if first.is_last:
                await self._put_whole(key, first.content)
                return
            async with self._uploads.begun(key) as upload:
                sent, tags = await self._send_all(key, upload, first, parts, place)
                await self._uploads.complete(upload, sent, tags)

    async def _send_all(
        self, key: str, upload: U, gathered_part: GatheredPart, rest: AsyncIterator[GatheredPart], place: AsyncExitStack
    ) -> tuple[list[UploadPart], list[str]]:
        """Send the part at hand, whose ``place`` is taken, and all others; return the parts and their entity tags."""
        parts: list[UploadPart] = []
        tasks: list[asyncio.Task[str]] = []
        position = 0
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    content = gathered_part.content
                    part = UploadPart(len(parts) + 1, ByteRange.of_size(position, len(content)), crc32c(content))
                    task = group.create_task(
                        self._uploads.send_bytes(upload, part, content), name=f"upload {key} {part.number}"
                    )
                    place.pop_all()  # now the task's, which may end before it has begun
                    task.add_done_callback(lambda _: self._places.release())
                    parts.append(part)
                    tasks.append(task)
                    position += len(content)
                    if gathered_part.is_last:
                        break
                    del content, gathered_part  # of what is sent only the task holds the bytes
                    await place.enter_async_context(self._places)
                    gathered_part = await anext(rest)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return parts, [task.result() for task in tasks]
