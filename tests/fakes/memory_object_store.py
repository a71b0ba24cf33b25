"""MemoryObjectStore: objects in a dictionary, for tests. They are gone with the process."""

import asyncio

from tierd.clock import Clock, SystemClock
from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteObjectRetainedError,
    RemoteResourceNotFoundError,
)
from tierd.files import open_to_read
from tierd.kernels import crc32c, crc32c_of_range
from tierd.model import CHECKSUM_BLOCK_BYTES, ByteRange
from tierd.remote.chunks import iterated, unreadable
from tierd.remote.object_store import Body, ChunkedBody, FileBody, ObjectInfo, ObjectVersion, UnfinishedUpload


class MemoryObjectStore:
    """An ``ObjectStore`` that keeps every object in memory. It has no unfinished uploads: a put is one step.

    Attributes:
        retained: keys whose objects ``delete`` refuses to remove, as a store with Object Lock does.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.retained: set[str] = set()
        self._clock = clock or SystemClock()
        self._objects: dict[str, bytes] = {}
        self._modified_ms: dict[str, int] = {}

    async def put(self, key: str, body: Body) -> None:
        """Create the object unless the key exists."""
        content = body if isinstance(body, bytes) else await _content_of(key, body)
        if key not in self._objects:
            self._store(key, content)
        elif self._objects[key] != content:
            raise RemoteConflictError(f"{key} exists already, with other content")

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give the object other content if it is exactly ``previous``."""
        present = self._find(key)
        if present not in {previous, content}:
            raise RemoteConflictError(f"{key} has other content than was expected", remedy="read it again")
        if present != content:
            self._store(key, content)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        content = self._find(key)
        return content if byte_range is None else content[byte_range.start : byte_range.end + 1]

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object."""
        content = self._find(key)
        return ObjectInfo(key, len(content), crc32c(content), self._modified_ms[key])

    async def delete(self, key: str) -> None:
        """Remove the object; one that is not there is no error."""
        if key in self.retained and key in self._objects:
            raise RemoteObjectRetainedError(f"{key} is retained", remedy="wait until its retention has ended")
        self._objects.pop(key, None)
        self._modified_ms.pop(key, None)

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects whose key begins with ``prefix``, in order of key."""
        keys = sorted(key for key in self._objects if key.startswith(prefix) and key > start_after)
        return [ObjectInfo(key, len(self._objects[key]), None, self._modified_ms[key]) for key in keys[:limit]]

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return nothing."""
        del prefix
        return []

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Return: this store has no unfinished uploads."""

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return the present objects: the store keeps no version of a deleted object."""
        return [
            ObjectVersion(key=info.key, version_id="", size_bytes=info.size_bytes, is_current=True)
            for info in await self.list_objects(prefix)
        ]

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove the object, whose present content is its one version."""
        await self.delete(version.key)

    async def check(self) -> None:
        """Return: memory needs no check."""

    async def close(self) -> None:
        """Keep the objects: a test may read them afterwards."""

    def _store(self, key: str, content: bytes) -> None:
        self._objects[key] = content
        self._modified_ms[key] = self._clock.now_ms()

    def _find(self, key: str) -> bytes:
        try:
            return self._objects[key]
        except KeyError:
            raise RemoteResourceNotFoundError(f"{key} is not in the store") from None


async def _content_of(key: str, body: FileBody | ChunkedBody) -> bytes:
    if isinstance(body, FileBody):
        return await _read(key, body)
    content = bytearray()
    async with iterated(body.chunks) as chunks:
        async for chunk in chunks:
            if body.pace is not None:
                await body.pace(len(chunk))
            content += chunk
    return bytes(content)


async def _read(key: str, body: FileBody) -> bytes:
    if body.byte_range is None:
        return b""
    if body.pace is not None:
        for position in range(0, body.size, CHECKSUM_BLOCK_BYTES):
            await body.pace(min(CHECKSUM_BLOCK_BYTES, body.size - position))
    try:
        content = await asyncio.to_thread(_read_range, body, body.byte_range)
    except OSError as error:
        raise unreadable(body.path, error) from error
    if crc32c(content) != crc32c_of_range(body.checksums, body.byte_range):
        raise RemoteIntegrityError(f"{key}: {body.path} is not what was checked", remedy="the segment is read again")
    return content


def _read_range(body: FileBody, byte_range: ByteRange) -> bytes:
    with open_to_read(body.path) as file:
        file.seek(byte_range.start)
        return file.read(byte_range.size)
