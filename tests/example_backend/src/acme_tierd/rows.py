"""AcmeKeyValueStore: rows in a table. A store provides five calls and inherits create, update and remove_prefix."""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Self, TypeVar

from acme_tierd.database import Database, transaction
from tierd.errors import BackendUnavailableError, MetadataError, PreconditionFailedError
from tierd.metadata import Batch, DeletePrefix, KeyValueStore, Put

T = TypeVar("T")


class AcmeKeyValueStore(KeyValueStore):
    """Every call is one transaction of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, database: Database) -> Self:
        """Open the file; reading only, one that was never made is an error."""
        store = cls(database)
        try:
            await store.get("")
        except BackendUnavailableError as error:
            await store.close()
            raise MetadataError(f"{database.path}: there is no metadata", remedy="start tierd once") from error
        return store

    async def get(self, key: str) -> bytes | None:
        """Return the value under ``key``."""
        return (await self.get_many([key])).get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist."""
        wanted = set(keys)

        def read(connection: sqlite3.Connection) -> dict[str, bytes]:
            connection.execute("BEGIN")
            try:
                rows = (connection.execute("SELECT key, value FROM rows WHERE key = ?", (key,)) for key in wanted)
                return {key: value for found in rows for key, value in found}
            finally:
                connection.execute("COMMIT")

        return await self._run(read)

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return every pair below ``prefix``, in order."""
        query = "SELECT key, value FROM rows WHERE substr(key, 1, ?) = ? ORDER BY key"
        return await self._run(lambda connection: connection.execute(query, (len(prefix), prefix)).fetchall())

    async def apply(self, batch: Batch) -> None:
        """Apply a batch durably, all of it or nothing."""
        if self._database.read_only:
            raise BackendUnavailableError(f"{self._database.path}: opened for reading only")
        await self._run(lambda connection: _apply(connection, batch))

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._database.is_closed:
            raise BackendUnavailableError(f"{self._database.path}: the store is closed")
        try:
            return await self._database.run(work)
        except sqlite3.Error as error:
            raise BackendUnavailableError(f"{self._database.path}: {error.sqlite_errorname}") from error


def _apply(connection: sqlite3.Connection, batch: Batch) -> None:
    with transaction(connection):
        for expect in batch.expect:
            row = connection.execute("SELECT value FROM rows WHERE key = ?", (expect.key,)).fetchone()
            actual = row[0] if row else None
            if not expect.holds(actual):
                raise PreconditionFailedError(expect.key, actual)
        for write in batch.writes:
            if isinstance(write, Put):
                connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (write.key, write.value))
            elif isinstance(write, DeletePrefix):
                parameters = (len(write.prefix), write.prefix)
                connection.execute("DELETE FROM rows WHERE substr(key, 1, ?) = ?", parameters)
            else:
                connection.execute("DELETE FROM rows WHERE key = ?", (write.key,))
