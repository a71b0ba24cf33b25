import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import asyncpg
import pytest
import structlog

from tests.contracts.missing_package import missing_package_is_named
from tests.contracts.networked_key_value_store import NetworkedKeyValueStoreContract, recovered
from tests.fakes.eventually import eventually
from tests.services.faulty_path import FaultyPath
from tests.services.postgres import PostgresService, psql, through
from tierd.errors import BackendUnavailableError, MetadataError, OutcomeUnknownError, PreconditionFailedError
from tierd.metadata import Batch, Delete, Expect, KeyValueStore, Put
from tierd.metadata.kv import PostgresKeyValueStore, postgres_batches, postgres_connections
from tierd.testing import KeyValueStoreContract


@contextlib.asynccontextmanager
async def opened(
    dsn: str, *, read_only: bool = False, timeout_s: float = 5.0, pool_size: int = 4
) -> AsyncIterator[PostgresKeyValueStore]:
    store = await PostgresKeyValueStore.open(
        dsn, schema_name="tierd", pool_size=pool_size, timeout_s=timeout_s, read_only=read_only
    )
    try:
        yield store
    finally:
        await store.close()


class TestPostgresKeyValueStore(KeyValueStoreContract):
    @pytest.fixture
    async def store(self, postgres_dsn: str) -> AsyncIterator[KeyValueStore]:
        async with opened(postgres_dsn) as store:
            yield store

    @pytest.fixture
    async def other(self, store: KeyValueStore, postgres_dsn: str) -> AsyncIterator[KeyValueStore]:
        async with opened(postgres_dsn) as other:
            yield other


@dataclass(frozen=True)
class PostgresServer:
    dsn: str
    service: PostgresService

    def open(
        self, *, by: str | None = None, timeout_s: float = 5.0, read_only: bool = False
    ) -> Awaitable[PostgresKeyValueStore]:
        dsn = through(self.dsn, by) if by else self.dsn
        return PostgresKeyValueStore.open(dsn, schema_name="tierd", timeout_s=timeout_s, read_only=read_only)

    def kill(self) -> None:
        self.service.services.kill("postgres")

    def start(self) -> None:
        self.service.services.start("postgres")

    def freeze(self) -> None:
        self.service.services.freeze("postgres")

    def thaw(self) -> None:
        self.service.services.thaw("postgres")

    def cut_connections(self) -> None:
        psql(self.dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tierd'")

    @property
    def secret(self) -> str:
        return urlsplit(self.dsn).password or "?"


@pytest.fixture
def server(postgres_dsn: str, postgres_service: PostgresService) -> PostgresServer:
    return PostgresServer(postgres_dsn, postgres_service)


@pytest.fixture
def faulty(server: PostgresServer, faulty_path_to: Callable[[str], FaultyPath]) -> FaultyPath:
    return faulty_path_to(urlsplit(server.dsn).netloc.rpartition("@")[2])


class TestPostgresOverTheNetwork(NetworkedKeyValueStoreContract):
    pass


def with_part(dsn: str, **parts: str) -> str:
    return urlsplit(dsn)._replace(**parts).geturl()


def with_password(dsn: str, password: str) -> str:
    parts = urlsplit(dsn)
    return with_part(dsn, netloc=f"{parts.username}:{password}@{parts.netloc.rpartition('@')[2]}")


async def test_wrong_credentials_are_an_error_that_is_not_retriable(postgres_dsn: str) -> None:
    with pytest.raises(MetadataError, match="password authentication failed") as caught:
        await PostgresKeyValueStore.open(with_password(postgres_dsn, "a-wrong-one"), schema_name="tierd")
    assert not caught.value.retriable
    assert "password" in caught.value.remedy
    assert "a-wrong-one" not in str(caught.value)


async def test_missing_database_is_named_with_a_remedy(postgres_dsn: str) -> None:
    with pytest.raises(MetadataError, match="absent") as caught:
        await PostgresKeyValueStore.open(with_part(postgres_dsn, path="/absent"), schema_name="tierd")
    assert "create the database" in caught.value.remedy


@pytest.mark.parametrize("dsn", ["mysql://host/db", "no address at all", "postgresql://host:port/db", "http://[::1/"])
async def test_malformed_address_is_refused_with_an_example(dsn: str) -> None:
    with pytest.raises(MetadataError) as caught:
        await PostgresKeyValueStore.open(dsn, schema_name="tierd")
    assert "postgresql://user" in caught.value.remedy


async def test_refusal_to_create_the_schema_names_the_grant(
    postgres_dsn: str, postgres_service: PostgresService
) -> None:
    psql(postgres_dsn, "CREATE ROLE limited LOGIN PASSWORD 'nothing'")
    try:
        theirs = with_password(postgres_dsn, "nothing").replace("//tierd:", "//limited:")
        with pytest.raises(MetadataError, match="permission denied") as caught:
            await PostgresKeyValueStore.open(theirs, schema_name="tierd")
        assert "grant" in caught.value.remedy
        async with opened(postgres_dsn):
            psql(postgres_dsn, "GRANT USAGE ON SCHEMA tierd TO limited; GRANT ALL ON tierd.kv TO limited")
            async with opened(theirs) as store:  # the schema exists now, so no right to create it is needed
                await store.apply(Batch([Put("a", b"1")]))
    finally:
        psql(postgres_dsn, "DROP OWNED BY limited; DROP ROLE limited")


@pytest.mark.parametrize("comment", ["NULL", "'tierd metadata, format 2'"])
async def test_a_table_of_another_program_or_format_is_refused(postgres_dsn: str, comment: str) -> None:
    psql(postgres_dsn, f"CREATE SCHEMA tierd; CREATE TABLE tierd.kv (key text); COMMENT ON TABLE tierd.kv IS {comment}")
    for read_only in (True, False):
        with pytest.raises(MetadataError, match="this tierd knows tierd metadata, format 1") as caught:
            await PostgresKeyValueStore.open(postgres_dsn, schema_name="tierd", read_only=read_only)
        assert "schema" in caught.value.remedy


async def test_schema_may_have_any_name_and_has_rows_of_its_own(postgres_dsn: str) -> None:
    names = ['Odd "name"; it\'s', "tierd"]
    stores = [await PostgresKeyValueStore.open(postgres_dsn, schema_name=name) for name in names]
    for store, value in zip(stores, (b"1", b"2"), strict=True):
        await store.apply(Batch([Put("a", value)]))
    assert [await store.get("a") for store in stores] == [b"1", b"2"]
    for store in stores:
        await store.close()


@pytest.mark.parametrize("setting", ["synchronous_commit", "fsync"])
async def test_database_that_may_lose_commits_in_a_crash_is_warned_about(postgres_dsn: str, setting: str) -> None:
    if setting == "fsync":
        psql(postgres_dsn, "ALTER SYSTEM SET fsync = off")
        psql(postgres_dsn, "SELECT pg_reload_conf()")
    else:
        psql(postgres_dsn, f"ALTER DATABASE {urlsplit(postgres_dsn).path[1:]} SET synchronous_commit = off")
    try:
        await eventually(lambda: psql(postgres_dsn, f"SHOW {setting}") == "off", what=f"{setting} to be off")
        with structlog.testing.capture_logs() as logs:
            async with opened(postgres_dsn):
                pass
    finally:
        psql(postgres_dsn, "ALTER SYSTEM RESET fsync")
        psql(postgres_dsn, "SELECT pg_reload_conf()")
    assert [(entry["event"], entry[setting]) for entry in logs] == [("metadata_may_be_lost", "off")]


async def test_row_locked_by_another_session_delays_only_its_own_batch(postgres_dsn: str) -> None:
    async with opened(postgres_dsn, timeout_s=0.5) as store:
        await store.apply(Batch([Put("held", b"1"), Put("free", b"1")]))
        other = await asyncpg.connect(postgres_dsn)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT * FROM tierd.kv WHERE key = 'held' FOR UPDATE")
        batches = [Batch([Put(key, b"2")], [Expect(key, b"1")]) for key in ("held", "free")]
        outcomes = await asyncio.gather(*map(store.apply, batches), return_exceptions=True)
        assert isinstance(outcomes[0], BackendUnavailableError | OutcomeUnknownError)
        assert outcomes[1] is None
        await transaction.rollback()
        await other.close()
        assert await store.get("free") == b"2"
        held = await store.get("held")
        if isinstance(outcomes[0], BackendUnavailableError):
            assert held == b"1"
        await store.apply(Batch([Put("held", b"3")], [Expect("held", held)]))


async def test_row_locked_by_another_session_does_not_delay_batches_of_its_round_trip(postgres_dsn: str) -> None:
    async with opened(postgres_dsn, timeout_s=2.0, pool_size=2) as store:
        await store.apply(Batch([Put("held", b"1")]))
        other = await asyncpg.connect(postgres_dsn)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT * FROM tierd.kv WHERE key = 'held' FOR UPDATE")
        first = asyncio.create_task(store.apply(Batch([Put("first", b"1")])))
        await asyncio.sleep(0)  # the only lane is taken: the next two go together
        batches = [Batch([Put("held", b"2")], [Expect("held", b"1")]), Batch([Put("free", b"2")])]
        held = asyncio.create_task(store.apply(batches[0]))
        async with asyncio.timeout(1.8):  # before the batches that wait for the row reach their deadline
            await store.apply(batches[1])
            await first
        with pytest.raises(BackendUnavailableError, match="lock"):
            await held
        await transaction.rollback()
        await other.close()


async def test_row_expected_absent_cannot_be_created_until_the_batch_is_committed(postgres_dsn: str) -> None:
    """Without that, rows would appear after a leader has claimed the partition and loaded it."""
    async with opened(postgres_dsn) as filling, opened(postgres_dsn) as leader:
        await leader.apply(Batch([Put("held", b"1")]))
        other = await asyncpg.connect(postgres_dsn)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT * FROM tierd.kv WHERE key = 'held' FOR UPDATE")
        late = asyncio.create_task(filling.apply(Batch([Put("held", b"2"), Put("late", b"2")], [Expect("row", None)])))
        await eventually(lambda: "Lock" in asked(postgres_dsn, "wait_event_type"), what="a batch that waits for a row")

        async def claimed() -> list[str]:
            await leader.apply(Batch([Put("row", b"1")], [Expect("row", None)]))
            return [key for key, _ in await leader.scan("")]

        claiming = asyncio.create_task(claimed())
        await asyncio.wait({claiming}, timeout=0.3)
        await transaction.rollback()
        await other.close()
        await late
        assert await claiming == ["held", "late", "row"]
        with pytest.raises(PreconditionFailedError):
            await filling.apply(Batch([Put("later", b"3")], [Expect("row", None)]))
        await filling.apply(Batch([Delete("x"), Put("later", b"3")], [Expect("x", None), Expect("row", b"1")]))
        assert [key for key, _ in await leader.scan("")] == ["held", "late", "later", "row"]


async def test_read_under_way_at_close_leaves_no_connection(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(postgres_dsn) as store:
        statements = replace(store._statements, get="SELECT $1::text[] IS NULL, pg_sleep(1)")
        monkeypatch.setattr(store, "_statements", statements)
        reading = asyncio.create_task(store.get("a"))
        await eventually(lambda: "pg_sleep" in asked(postgres_dsn, "query"), what="the read")
    with contextlib.suppress(BackendUnavailableError):
        await reading
    await eventually(lambda: asked(postgres_dsn, "pid") == "", what="the end of every session")


def asked(dsn: str, column: str) -> str:
    """Return a column of the sessions of tierd in this database."""
    of_tierd = "datname = current_database() AND application_name = 'tierd'"
    return psql(dsn, f"SELECT {column} FROM pg_stat_activity WHERE {of_tierd}")


async def test_server_without_the_required_isolation_level_is_refused(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler may drop the settings of a session; then two brokers could both claim one new partition."""

    def dropped(timeout_s: float, *, read_only: bool) -> dict[str, str]:
        return {"application_name": "tierd"}

    monkeypatch.setattr(postgres_connections, "_settings", dropped)
    with pytest.raises(MetadataError, match="read committed") as caught:
        await PostgresKeyValueStore.open(postgres_dsn, schema_name="tierd")
    assert "pooler" in caught.value.remedy


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://user:pa/hunter2@127.0.0.1:1/db",
        "postgresql://user:hunter2#x@127.0.0.1:1/db",
        "postgresql://user:hunter2?x@127.0.0.1:1/db",
        "postgresql://user:x?hunter2@127.0.0.1:1/db",
        "postgresql://user:a@b/hunter2@127.0.0.1:1/db",
        "user:hunter2@127.0.0.1/db",
        "host=127.0.0.1 password=hunter2",
    ],
)
async def test_password_that_breaks_the_address_is_not_in_the_error(dsn: str) -> None:
    with pytest.raises((MetadataError, BackendUnavailableError)) as caught:
        await PostgresKeyValueStore.open(dsn, schema_name="tierd", timeout_s=1)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_batch_that_the_server_cannot_store_leaves_the_other_batches_written(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store:
        batches = [Batch([Put("a", b"1")]), Batch([Put("nul \0", b"1")]), Batch([Put("b", b"1")])]
        outcomes = await asyncio.gather(*map(store.apply, batches), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), BackendUnavailableError, type(None)]
        assert await store.scan("") == [("a", b"1"), ("b", b"1")]


async def test_store_recovers_after_its_server_was_read_only(
    server: PostgresServer, postgres_dsn: str, postgres_service: PostgresService
) -> None:
    database = urlsplit(postgres_dsn).path[1:]
    async with opened(postgres_dsn) as store:
        await store.apply(Batch([Put("a", b"1")]))
        psql(postgres_dsn, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        server.cut_connections()
        with pytest.raises(BackendUnavailableError):
            await store.get("a")
        with pytest.raises(BackendUnavailableError):
            await store.apply(Batch([Put("a", b"2")]))
        psql(postgres_service.dsn, f"ALTER DATABASE {database} RESET ALL")
        await recovered(lambda: store.apply(Batch([Put("a", b"3")])))


async def test_pool_is_bounded_and_reuses_idle_connections(postgres_dsn: str) -> None:
    def connections() -> int:
        return int(psql(postgres_dsn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tierd'"))

    async with opened(postgres_dsn, pool_size=3) as store:
        for _ in range(5):
            await asyncio.gather(*(store.apply(Batch([Put(f"k{n}", b"")])) for n in range(200)))
            await asyncio.gather(*(store.scan("k") for _ in range(50)))
        assert connections() <= 3
    await eventually(lambda: connections() == 0, what="the connections to be closed")


async def test_waiting_batches_share_a_round_trip(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = list[int]()
    columns = postgres_batches._columns

    def counted(batches: Sequence[Batch]) -> tuple[list[object], ...]:
        groups.append(len(batches))
        return columns(batches)

    monkeypatch.setattr(postgres_batches, "_columns", counted)
    async with opened(postgres_dsn, pool_size=2) as store:
        await asyncio.gather(*(store.apply(Batch([Put(f"k{n}", b"")], [Expect(f"k{n}", None)])) for n in range(65)))
    assert groups == [1, 64]


async def test_missing_package_is_named_with_the_command_that_installs_it() -> None:
    await missing_package_is_named(
        "postgres", "asyncpg", "PostgresKeyValueStore.open('postgresql://h', schema_name='s')"
    )
