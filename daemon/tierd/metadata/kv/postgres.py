"""PostgresKeyValueStore: the metadata store of several brokers."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Self

from tierd.errors import BackendUnavailableError
from tierd.metadata.kv.batch_groups import BatchGroups, WriteGroup
from tierd.metadata.kv.key_value_store import Batch, KeyValueStore, end_of
from tierd.metadata.kv.refusals import at_opening, missing_package

if TYPE_CHECKING:
    from tierd.metadata.kv.postgres_connections import PostgresConnections
    from tierd.metadata.kv.postgres_schema import Statements

_ROWS_CONVERTED_IN_LOOP: Final = 5000  # a few milliseconds


class PostgresKeyValueStore(KeyValueStore):
    """Store in one table; every call is one statement, one round trip and one snapshot. Used from one event loop.

    Batches that wait for a connection share the next statement, and so one sync to disk; the statement locks rows in
    the order of their keys, so that brokers do not block each other for ever. Needs a connection to the server
    itself or a pooler that keeps sessions: settings of the session matter.
    """

    def __init__(
        self,
        connections: "PostgresConnections",
        statements: "Statements",
        write: WriteGroup,
        *,
        lanes: int,
        read_only: bool,
    ) -> None:
        self._connections = connections
        self._statements = statements
        self._read_only = read_only
        self._groups = BatchGroups(write, lanes=lanes, name=connections.name)

    @classmethod
    async def open(
        cls, dsn: str, *, schema_name: str, pool_size: int = 4, timeout_s: float = 5.0, read_only: bool = False
    ) -> Self:
        """Connect, and make the schema and its table when they are missing.

        Args:
            dsn: libpq's form, ``postgresql://user:password@host:5432/database``; several hosts may be listed.
            schema_name: where the table lies; several tierd clusters may share it.
            pool_size: most connections at a time.
            timeout_s: longest wait for a connection, for a statement, and on the server.
            read_only: make and change nothing; a standby will do.

        Raises:
            MetadataError: a wrong address, wrong credentials, a foreign or missing table, or asyncpg is not installed.
            BackendUnavailableError: the server cannot be reached within ``timeout_s``.
        """
        try:
            from tierd.metadata.kv import (  # noqa: PLC0415  asyncpg is an extra
                postgres_batches,
                postgres_connections,
                postgres_schema,
            )
        except ModuleNotFoundError as error:
            raise missing_package("postgres", error) from error
        connections = postgres_connections.PostgresConnections(
            dsn, pool_size=pool_size, timeout_s=timeout_s, read_only=read_only
        )
        try:
            statements = await postgres_schema.prepare_table(connections, schema_name, read_only=read_only)
        except BackendUnavailableError as error:
            await connections.close()
            raise at_opening(error) from error
        except BaseException:
            await connections.close()
            raise
        write = postgres_batches.writer(connections, statements)
        # Half of the connections stay free for reads, which may be long.
        return cls(connections, statements, write, lanes=max(1, pool_size // 2), read_only=read_only)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist."""
        rows = await self._connections.run_repeatable(self._statements.get, list(keys))
        return {row[0]: row[1] for row in rows}

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return every pair below ``prefix``, in order."""
        if prefix:
            rows = await self._connections.run_repeatable(self._statements.scan, prefix, end_of(prefix))
        else:
            rows = await self._connections.run_repeatable(self._statements.scan_all)
        pairs: list[tuple[str, bytes]] = []
        for start in range(0, len(rows), _ROWS_CONVERTED_IN_LOOP):
            pairs += [(row[0], row[1]) for row in rows[start : start + _ROWS_CONVERTED_IN_LOOP]]
            await asyncio.sleep(0)
        return pairs

    async def apply(self, batch: Batch) -> None:
        """Apply a batch durably, all of it or nothing."""
        if self._read_only:
            raise BackendUnavailableError(f"{self._connections.name}: opened for reading only")
        await self._groups.apply(batch)

    async def close(self) -> None:
        """Let running batches end and close the connections."""
        await self._groups.close()
        await self._connections.close()
