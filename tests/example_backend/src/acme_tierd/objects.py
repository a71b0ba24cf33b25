"""AcmeObjectStore: objects in a table, each held in memory while it is stored; for small tiers."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from acme_tierd.database import Database, transaction
from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from tierd.kernels import crc32c, crc32c_of_range
from tierd.model import ByteRange
from tierd.remote import Body, ChunkedBody, FileBody, ObjectInfo, ObjectStore, UnfinishedUpload

T = TypeVar("T")

_STEP_BYTES = 1 << 20
_NEW = "INSERT OR IGNORE INTO objects VALUES (?, ?, ?, ?)"


class AcmeObjectStore(ObjectStore):
    """Every call is one transaction of the database, so that an upload is never unfinished."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: str, body: Body) -> None:
        """Create the object unless the key exists."""
        content = await _content_of(key, body)
        row = (key, content, crc32c(content), int(time.time() * 1000))

        def insert(connection: sqlite3.Connection) -> bytes:
            connection.execute(_NEW, row)
            (stored,) = connection.execute("SELECT content FROM objects WHERE key = ?", (key,)).fetchone()
            return bytes(stored)

        if await self._run(insert) != content:
            raise RemoteConflictError(f"{key} exists already, with other content")

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give the object other content if it is exactly ``previous``."""

        def update(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                row = connection.execute("SELECT content FROM objects WHERE key = ?", (key,)).fetchone()
                if row is None:
                    raise _absent(key)
                if row[0] not in {previous, content}:
                    raise RemoteConflictError(f"{key} has other content than was expected", remedy="read it again")
                values = (content, crc32c(content), key)
                connection.execute("UPDATE objects SET content = ?, crc32c = ? WHERE key = ?", values)

        await self._run(update)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        start, size = (byte_range.start, byte_range.size) if byte_range else (0, 2**31 - 1)
        query = "SELECT substr(content, ?, ?) FROM objects WHERE key = ?"
        row = await self._run(lambda connection: connection.execute(query, (start + 1, size, key)).fetchone())
        if row is None:
            raise _absent(key)
        return bytes(row[0] or b"")  # NULL past the end

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object."""
        found = await self._infos("key = ?", (key,))
        if not found:
            raise _absent(key)
        return found[0]

    async def delete(self, key: str) -> None:
        """Remove the object; one that is not there is no error."""
        await self._run(lambda connection: connection.execute("DELETE FROM objects WHERE key = ?", (key,)).fetchall())

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects whose key begins with ``prefix``, in order of key."""
        parameters = (len(prefix), prefix, start_after, -1 if limit is None else limit)
        return await self._infos("substr(key, 1, ?) = ? AND key > ? ORDER BY key LIMIT ?", parameters)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return nothing: a put is one step."""
        del prefix
        return []

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Do nothing: there is no such upload."""

    async def check(self) -> None:
        """Raise unless the database can be opened."""
        await self.list_objects("", limit=1)

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()

    async def _infos(self, where: str, parameters: tuple[str | int, ...]) -> list[ObjectInfo]:
        query = f"SELECT key, length(content), crc32c, modified_ms FROM objects WHERE {where}"
        rows = await self._run(lambda connection: connection.execute(query, parameters).fetchall())
        return [ObjectInfo(*row) for row in rows]

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._database.run(work)
        except sqlite3.Error as error:
            raise RetriableRemoteStorageError(f"{self._database.path}: {error.sqlite_errorname}") from error


def _absent(key: str) -> RemoteResourceNotFoundError:
    return RemoteResourceNotFoundError(f"{key} is not in the store")


async def _content_of(key: str, body: Body) -> bytes:
    match body:
        case bytes():
            return body
        case FileBody():
            return await _file_content(key, body)
        case ChunkedBody():
            return await _chunked_content(body)


async def _file_content(key: str, body: FileBody) -> bytes:
    """Read the file in steps, each paced, and hold it to the checksums that were taken before."""
    content = bytearray()
    if body.byte_range is None:
        return b""
    for position in range(body.byte_range.start, body.byte_range.end + 1, _STEP_BYTES):
        step = min(_STEP_BYTES, body.byte_range.end + 1 - position)
        if body.pace is not None:
            await body.pace(step)
        try:
            content += await asyncio.to_thread(_read, body, position, step)
        except OSError as error:
            raise RemoteIntegrityError(f"{body.path} cannot be read: {error.strerror}") from error
    if crc32c(content) != crc32c_of_range(body.checksums, body.byte_range):
        raise RemoteIntegrityError(f"{key}: {body.path} is not what was checked")
    return bytes(content)


def _read(body: FileBody, position: int, size: int) -> bytes:
    with body.path.open("rb") as file:
        file.seek(position)
        return file.read(size)


async def _chunked_content(body: ChunkedBody) -> bytes:
    """Take the chunks, and close their iterator when it is left early."""
    content = bytearray()
    chunks = body.chunks()
    try:
        async for chunk in chunks:
            if body.pace is not None:
                await body.pace(len(chunk))
            content += chunk
    finally:
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()
    return bytes(content)
