"""RedisKeyValueStore: the metadata store of several brokers that run a Redis already."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Self, cast

import structlog

from tierd.errors import (
    BackendUnavailableError,
    MetadataError,
    OutcomeUnknownError,
    PreconditionFailedError,
    TierError,
)
from tierd.metadata.kv import redis_scripts as scripts
from tierd.metadata.kv.batch_groups import BatchGroups
from tierd.metadata.kv.key_value_store import Batch, KeyValueStore
from tierd.metadata.kv.refusals import at_opening, missing_package

if TYPE_CHECKING:
    from tierd.metadata.kv.redis_connections import RedisConnections

log = structlog.get_logger()

_ROWS_PER_PAGE: Final = 1000  # a script that reads so many rows occupies the server for three milliseconds
_SNAPSHOT_ATTEMPTS: Final = 3
_WAIT_SHARE: Final = 0.5  # of the deadline, so that the server's own answer comes first


class RedisKeyValueStore(KeyValueStore):
    """Store in one sorted set; a batch is a script, checked and applied in one moment. Used from one event loop.

    Batches that wait while the server is busy share the next script, and so one sync to its disk.

    As durable as the server: with ``appendonly yes`` and ``appendfsync always`` it loses nothing when it dies. A
    failover loses what the new primary had not received, unless ``replicas`` makes every batch wait for it.
    """

    def __init__(self, connections: "RedisConnections", *, replicas: int, read_only: bool) -> None:
        self._connections = connections
        self._replicas = replicas
        self._read_only = read_only
        # Redis runs one script at a time: a second one under way would only make the groups smaller.
        self._groups = BatchGroups(self._write, lanes=1, name=connections.name)

    @classmethod
    async def open(
        cls, url: str, *, replicas: int = 0, pool_size: int = 8, timeout_s: float = 5.0, read_only: bool = False
    ) -> Self:
        """Connect and mark the database as tierd's when it is empty.

        Args:
            url: ``redis://`` or, with TLS, ``rediss://user:password@host:6379/0``.
            replicas: how many replicas must have a batch before it counts as durable.
            pool_size: most connections at a time.
            timeout_s: longest wait for a connection and for an answer.
            read_only: change nothing.

        Raises:
            MetadataError: a wrong address, wrong credentials, a foreign or empty database, or redis is not installed.
            BackendUnavailableError: the server cannot be reached within ``timeout_s``.
        """
        try:
            from tierd.metadata.kv import redis_connections  # noqa: PLC0415  redis is an extra
        except ModuleNotFoundError as error:
            raise missing_package("redis", error) from error
        try:
            connections = redis_connections.RedisConnections(url, pool_size=pool_size, timeout_s=timeout_s)
            try:
                await _prepare(connections, read_only=read_only)
            except BaseException:
                await connections.close()
                raise
        except BackendUnavailableError as error:
            raise at_opening(error) from error
        return cls(connections, replicas=replicas, read_only=read_only)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist."""
        wanted = list(dict.fromkeys(keys))

        async def pages(snapshot: "_Snapshot", size: int) -> None:
            for start in range(0, len(wanted), size):
                await snapshot.read(scripts.LOOK_UP, *(key.encode() for key in wanted[start : start + size]))

        return await self._snapshot(pages, frozenset(wanted).__contains__)

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return every pair below ``prefix``, in order."""
        first, end = scripts.range_of(prefix)

        async def pages(snapshot: "_Snapshot", size: int) -> None:
            begin = first
            while len(found := await snapshot.read(scripts.PAGE, begin, end, size)) == size:
                begin = b"(" + found[-1]

        return sorted((await self._snapshot(pages, lambda key: key.startswith(prefix))).items())

    async def apply(self, batch: Batch) -> None:
        """Apply a batch durably, all of it or nothing."""
        if self._read_only:
            raise BackendUnavailableError(f"{self._connections.name}: opened for reading only")
        await self._groups.apply(batch)

    async def close(self) -> None:
        """Let running batches end and close the connections."""
        await self._groups.close()
        await self._connections.close()

    async def _write(self, batches: Sequence[Batch]) -> list[TierError | None]:
        wait = ("WAIT", self._replicas, int(self._connections.timeout_s * _WAIT_SHARE * 1000)) if self._replicas else ()
        try:
            answer, *acknowledged = await self._connections.script(
                scripts.APPLY, *scripts.apply_arguments(batches), then=wait
            )
        except (BackendUnavailableError, OutcomeUnknownError) as error:
            return [error] * len(batches)
        outcomes: list[TierError | None] = [None] * len(batches)
        refused = iter(cast("list[bytes]", answer))
        for number, key, member in zip(refused, refused, refused, strict=True):
            outcomes[int(number) - 1] = PreconditionFailedError(key.decode(), scripts.value_in(member))
        reached = cast("int", acknowledged[0]) if acknowledged else self._replicas
        return outcomes if reached >= self._replicas else self._too_few(reached, outcomes)

    def _too_few(self, reached: int, outcomes: Sequence[TierError | None]) -> list[TierError | None]:
        """Return the outcomes when too few replicas confirmed: a refusal, too, may be due to a write that is lost."""
        cause = f"{self._connections.name}: {reached} of {self._replicas} replicas have the batch"
        remedy = "look at the replicas and the network, or lower metadata.redis.replicas"
        unknown, refused = OutcomeUnknownError(cause, remedy=remedy), BackendUnavailableError(cause, remedy=remedy)
        return [unknown if outcome is None else refused for outcome in outcomes]

    async def _snapshot(
        self, pages: Callable[["_Snapshot", int], Awaitable[None]], concerns: Callable[[str], bool]
    ) -> dict[str, bytes]:
        """Read pages, then the rows that changed meanwhile; if these are too many, read all in one call at last."""
        for attempt in range(_SNAPSHOT_ATTEMPTS):
            snapshot = _Snapshot(self._connections)
            await pages(snapshot, _ROWS_PER_PAGE if attempt < _SNAPSHOT_ATTEMPTS - 1 else _UNBOUNDED)
            if await snapshot.complete(concerns):
                return snapshot.rows
        raise BackendUnavailableError(f"{self._connections.name}: it changes faster than it can be read")


_UNBOUNDED: Final = 1 << 31


class _Snapshot:
    """Rows that were read in pages, and the number of the write after which they may be out of date."""

    def __init__(self, connections: "RedisConnections") -> None:
        self._connections = connections
        self._since: int | None = None
        self._pages = 0
        self.rows: dict[str, bytes] = {}

    async def read(self, script: scripts.Script, *arguments: bytes | int) -> list[bytes]:
        """Add a page; return its members."""
        answer = await self._connections.script_repeatable(script, *arguments)
        seq, lengths, data = cast("tuple[bytes, bytes, bytes]", answer)
        members = scripts.unpacked(lengths, data)
        self.rows |= scripts.rows_of(members)
        self._since = int(seq) if self._since is None else self._since
        self._pages += 1
        return members

    async def complete(self, concerns: Callable[[str], bool]) -> bool:
        """Bring every page to the moment of the last call; False when that cannot be done any more."""
        since = self._since
        while self._pages > 1:
            answer = await self._connections.script_repeatable(scripts.CHANGED, since or 0, _ROWS_PER_PAGE)
            if answer is None:
                return False
            upto, lengths, data, last = cast("tuple[bytes, bytes, bytes, bytes]", answer)
            strings = iter(scripts.unpacked(lengths, data))
            for key, member in zip(strings, strings, strict=True):
                self._take(key.decode(), scripts.value_in(member), concerns)
            if int(upto) >= int(last):
                break
            since = int(upto)
        return True

    def _take(self, key: str, value: bytes | None, concerns: Callable[[str], bool]) -> None:
        if value is None:
            self.rows.pop(key, None)
        elif concerns(key):
            self.rows[key] = value


async def _prepare(connections: "RedisConnections", *, read_only: bool) -> None:
    """Check the format mark of the database, write it where there is none, and warn if the server may forget data."""
    found = await connections.run_repeatable("GET", scripts.FORMAT_KEY)
    if found is None:
        if read_only:
            remedy = "start tierd once, or correct metadata.redis.url"
            raise MetadataError(f"{connections.name}: there is no tierd metadata", remedy=remedy)
        await connections.run_repeatable("SET", scripts.FORMAT_KEY, scripts.FORMAT, "NX")
        found = await connections.run_repeatable("GET", scripts.FORMAT_KEY)
    if found != scripts.FORMAT:
        raise MetadataError(
            f"{connections.name}: metadata of format {found!r}, this tierd knows {scripts.FORMAT!r}",
            remedy="use the version of tierd that wrote it, or a later one",
        )
    if not read_only:
        await connections.script_repeatable(scripts.PROBE)
        await _warn_if_forgetful(connections)


async def _warn_if_forgetful(connections: "RedisConnections") -> None:
    try:
        answer = cast("list[bytes]", await connections.run_repeatable("CONFIG", "GET", "append*"))
    except BackendUnavailableError:  # managed servers do not let every client ask
        return
    settings = dict(zip(answer[::2], answer[1::2], strict=True))
    appendonly, appendfsync = settings.get(b"appendonly", b"").decode(), settings.get(b"appendfsync", b"").decode()
    if (appendonly, appendfsync) != ("yes", "always"):
        log.warning(
            "metadata_may_be_lost",
            store=connections.name,
            appendonly=appendonly,
            appendfsync=appendfsync,
            remedy="set appendonly yes and appendfsync always: a crash of Redis loses what tierd holds for durable",
        )
