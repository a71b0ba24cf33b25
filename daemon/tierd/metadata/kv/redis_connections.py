"""RedisConnections: a bounded pool of connections, and calls whose failure says if they may have been applied."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol, cast

from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tierd.errors import BackendUnavailableError, OutcomeUnknownError
from tierd.masking import Masking
from tierd.metadata.kv import redis_errors
from tierd.metadata.kv.redis_scripts import KEYS, Script
from tierd.metadata.kv.refusals import BadAddressError, name_of

_CHECKED_AFTER_S: Final = 30.0  # a connection that is idle for longer is checked before its next use

Argument = bytes | str | int
_FAILURES: Final = (exceptions.RedisError, OSError, ValueError)


class _Connection(Protocol):
    """The part of the client's connections that is used."""

    def pack_commands(self, commands: Sequence[Sequence[Argument]]) -> list[bytes]: ...

    async def send_packed_command(self, command: list[bytes]) -> None: ...

    async def read_response(self) -> object: ...

    async def disconnect(self, nowait: bool = ...) -> None: ...


class _Pool(Protocol):
    """The part of the client's pool that is used; the pool has no types of its own."""

    async def get_connection(self) -> _Connection: ...

    async def release(self, connection: _Connection) -> None: ...

    async def disconnect(self, inuse_connections: bool = ...) -> None: ...

    async def aclose(self) -> None: ...


class RedisConnections:
    """Connections that repeat no command unasked: a batch that was applied would be refused the second time."""

    def __init__(self, url: str, *, pool_size: int, timeout_s: float) -> None:
        self.name = name_of("redis", url)
        self.masking = Masking(url)
        self.timeout_s = timeout_s
        self._closed = False
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=pool_size,
                timeout=timeout_s,
                socket_timeout=None,  # with one the client swallows cancellations (asyncio.wait_for before Python 3.12)
                socket_connect_timeout=timeout_s,
                socket_keepalive=True,
                health_check_interval=_CHECKED_AFTER_S,
                retry=Retry(NoBackoff(), 0),
                decode_responses=False,
                protocol=2,
            )
            self._pool = cast("_Pool", pool)
        except ValueError:
            bad = redis_errors.refused(self.name, self.masking, BadAddressError())
            raise bad from bad.__cause__

    async def run_repeatable(self, *command: Argument) -> object:
        """Run a command that may as well run twice, and do so where the connection was lost.

        Raises:
            BackendUnavailableError: the server refused it, or cannot be reached.
        """
        return await self._repeatable([command])

    async def script_repeatable(self, script: Script, *arguments: Argument) -> object:
        """Run a script that may as well run twice, and do so where the connection was lost."""
        try:
            return await self._repeatable([_by_name(script, arguments)])
        except redis_errors.ScriptMissingError:
            pass
        return await self._repeatable([_by_text(script, arguments)])

    async def script(self, script: Script, *arguments: Argument, then: Sequence[Argument] = ()) -> list[object]:
        """Run a script once, and a command after it in the same round trip; return both answers.

        Raises:
            OutcomeUnknownError: it was sent and not answered, or the server refused ``then``.
            BackendUnavailableError: it was not sent, or the server refused it.
        """
        following = [then] if then else []
        try:
            return await self._run([_by_name(script, arguments), *following])
        except redis_errors.ScriptMissingError:
            pass
        return await self._run([_by_text(script, arguments), *following])

    async def _repeatable(self, commands: Sequence[Sequence[Argument]]) -> object:
        try:
            try:
                (answer,) = await self._run(commands)
            except OutcomeUnknownError:
                (answer,) = await self._run(commands)
        except OutcomeUnknownError as error:
            raise BackendUnavailableError(str(error), remedy=error.remedy) from error.__cause__
        return answer

    async def _run(self, commands: Sequence[Sequence[Argument]]) -> list[object]:
        if self._closed:
            raise BackendUnavailableError(f"{self.name}: the metadata store is closed")
        try:
            async with asyncio.timeout(self.timeout_s):
                connection = await self._pool.get_connection()
        except _FAILURES as error:
            refusal = redis_errors.refused(self.name, self.masking, error)
            raise refusal from refusal.__cause__
        answered = False
        try:
            async with asyncio.timeout(self.timeout_s):
                await connection.send_packed_command(connection.pack_commands(commands))
                answers = [await _answer(connection) for _ in commands]
            answered = True
        except _FAILURES as error:
            kind = redis_errors.refused if redis_errors.is_refusal(error) else redis_errors.unknown
            failure = kind(self.name, self.masking, error)
            raise failure from failure.__cause__
        finally:
            if not answered:  # an answer may still come, and would be taken for another command's
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)
        for number, answer in enumerate(answers):
            if isinstance(answer, exceptions.ResponseError):
                if redis_errors.is_demoted(answer):  # look for the new primary
                    await self._pool.disconnect(inuse_connections=False)
                if number:  # the script before it was applied
                    raise redis_errors.unknown(self.name, self.masking, answer)
                raise redis_errors.refused(self.name, self.masking, answer)
        return answers

    async def close(self) -> None:
        """Close the connections; a call that runs loses its own."""
        self._closed = True
        await self._pool.aclose()


async def _answer(connection: _Connection) -> object:
    try:
        return await connection.read_response()
    except exceptions.ResponseError as error:
        return error


def _by_name(script: Script, arguments: Sequence[Argument]) -> list[Argument]:
    return ["EVALSHA", script.sha, len(KEYS), *KEYS, *arguments]


def _by_text(script: Script, arguments: Sequence[Argument]) -> list[Argument]:
    return ["EVAL", script.text, len(KEYS), *KEYS, *arguments]
