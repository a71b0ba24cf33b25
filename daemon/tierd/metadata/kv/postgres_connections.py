"""PostgresConnections: a bounded pool of connections that set themselves up, and replace themselves after a loss."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from tierd.errors import BackendUnavailableError, OutcomeUnknownError
from tierd.masking import Masking
from tierd.metadata.kv import postgres_errors
from tierd.metadata.kv.refusals import BadAddressError, name_of

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

_IDLE_LIMIT_S: Final = 60.0  # a firewall may have forgotten a connection that is idle for longer
_CLOSE_LIMIT_S: Final = 1.0
_LOCK_SHARE: Final = 0.25  # of the deadline: the wait of a group, and then of the one batch that has to wait


class PostgresConnections:
    """Connections in ``REPEATABLE READ``, so that a statement that another one overtook fails with 40001.

    A connection whose call ended without an answer is closed, and usually the idle ones with it: after a failover all
    of them are dead.
    """

    def __init__(self, dsn: str, *, pool_size: int, timeout_s: float, read_only: bool) -> None:
        self.name = name_of("postgres", dsn)
        self.masking = Masking(dsn)
        self.timeout_s = timeout_s
        self._dsn = dsn
        self._read_only = read_only
        self._any_server = read_only or "target_session_attrs" in dsn
        self._slots = asyncio.Semaphore(pool_size)
        self._idle: list[tuple[Connection, float]] = []  # and since when; the one used last is used next
        self._closed = False

    async def run_repeatable(self, query: str, *arguments: object) -> Sequence[asyncpg.Record]:
        """Run a statement that may as well run twice, and do so where the connection was lost.

        Raises:
            BackendUnavailableError: the server refused it, or cannot be reached.
        """
        try:
            try:
                return await self.run(query, *arguments)
            except OutcomeUnknownError:
                return await self.run(query, *arguments)
        except OutcomeUnknownError as error:
            raise BackendUnavailableError(str(error), remedy=error.remedy) from error.__cause__
        except asyncpg.PostgresError as error:
            refusal = postgres_errors.refused(self.name, self.masking, error)
            raise refusal from refusal.__cause__

    async def run(self, query: str, *arguments: object) -> Sequence[asyncpg.Record]:
        """Run a statement once, in a transaction of its own; after a cancellation it may still take effect.

        Raises:
            asyncpg.PostgresError: the server refused it, and nothing happened.
            OutcomeUnknownError: the statement was sent and not answered.
            BackendUnavailableError: the statement was not sent.
        """
        async with self.connection() as connection:
            return await connection.fetch(query, *arguments)

    @contextlib.asynccontextmanager
    async def connection(self) -> "AsyncIterator[Connection]":
        """Lend a connection; the errors are those of ``run``."""
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._slots.acquire()
        except TimeoutError as error:
            refusal = postgres_errors.refused(self.name, self.masking, error)
            raise refusal from refusal.__cause__
        try:
            connection = await self._connected()
            try:
                yield connection
            except BaseException as error:
                self._judge(connection, error)
                raise
            self._give_back(connection)
        finally:
            self._slots.release()

    async def _connected(self) -> "Connection":
        if self._closed:
            raise BackendUnavailableError(f"{self.name}: the metadata store is closed")
        oldest_s = asyncio.get_running_loop().time() - _IDLE_LIMIT_S
        while self._idle:
            connection, since_s = self._idle.pop()
            if not connection.is_closed() and since_s > oldest_s:
                return connection
            connection.terminate()
        try:
            return await asyncpg.connect(
                self._dsn,
                timeout=self.timeout_s,
                command_timeout=self.timeout_s,
                server_settings=_settings(self.timeout_s, read_only=self._read_only),
                target_session_attrs=None if self._any_server else SessionAttribute.read_write,
            )
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            refusal = postgres_errors.refused(self.name, self.masking, error)
            raise refusal from refusal.__cause__
        except ValueError:
            bad = postgres_errors.refused(self.name, self.masking, BadAddressError())
            raise bad from bad.__cause__

    def _give_back(self, connection: "Connection") -> None:
        if self._closed:
            connection.terminate()
        else:
            self._idle.append((connection, asyncio.get_running_loop().time()))

    def _judge(self, connection: "Connection", error: BaseException) -> None:
        """Keep or cut the connection after ``error``; raise our error where the server did not answer."""
        if postgres_errors.is_answer(error) and not postgres_errors.is_standby(error):
            self._give_back(connection)
            return
        connection.terminate()
        if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | asyncpg.InternalClientError | OSError):
            while self._idle:  # lost, or no longer a primary: so are the others
                self._idle.pop()[0].terminate()
            if not postgres_errors.is_answer(error):
                kind = postgres_errors.unknown if postgres_errors.is_unknown(error) else postgres_errors.refused
                failure = kind(self.name, self.masking, error)
                raise failure from failure.__cause__

    async def close(self) -> None:
        """Close idle connections within a second; the connection of a running call is closed at its end."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(
            *(connection.close(timeout=_CLOSE_LIMIT_S) for connection, _ in idle), return_exceptions=True
        )


def _settings(timeout_s: float, *, read_only: bool) -> dict[str, str]:
    limit_ms = str(max(1, int(timeout_s * 1000)))
    settings = {
        "application_name": "tierd",
        "default_transaction_isolation": "repeatable read",
        "statement_timeout": limit_ms,
        # A batch that shares a statement with one that waits for a row is still answered in time.
        "lock_timeout": str(max(1, int(timeout_s * 1000 * _LOCK_SHARE))),
        "idle_in_transaction_session_timeout": limit_ms,
        # Statements are few and always go by key: plan each once, and never for the table as it was when it was small.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
    }
    return settings | {"default_transaction_read_only": "on"} if read_only else settings
