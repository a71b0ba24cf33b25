import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

import pytest
import redis
import structlog

from tests.contracts.missing_package import missing_package_is_named
from tests.contracts.networked_key_value_store import NetworkedKeyValueStoreContract, recovered
from tests.services.faulty_path import FaultyPath
from tests.services.redis import RedisService, through
from tierd.errors import BackendUnavailableError, MetadataError, OutcomeUnknownError
from tierd.metadata import Batch, Delete, Expect, KeyValueStore, Put
from tierd.metadata.kv import RedisKeyValueStore
from tierd.metadata.kv import redis as redis_store
from tierd.metadata.kv import redis_scripts as scripts
from tierd.testing import KeyValueStoreContract


@contextlib.asynccontextmanager
async def opened(
    url: str, *, read_only: bool = False, timeout_s: float = 5.0, pool_size: int = 8, replicas: int = 0
) -> AsyncIterator[RedisKeyValueStore]:
    store = await RedisKeyValueStore.open(
        url, replicas=replicas, pool_size=pool_size, timeout_s=timeout_s, read_only=read_only
    )
    try:
        yield store
    finally:
        await store.close()


class TestRedisKeyValueStore(KeyValueStoreContract):
    @pytest.fixture
    async def store(self, redis_url: str) -> AsyncIterator[KeyValueStore]:
        async with opened(redis_url) as store:
            yield store

    @pytest.fixture
    async def other(self, store: KeyValueStore, redis_url: str) -> AsyncIterator[KeyValueStore]:
        async with opened(redis_url) as other:
            yield other


@dataclass(frozen=True)
class RedisServer:
    url: str
    service: RedisService

    def open(
        self, *, by: str | None = None, timeout_s: float = 5.0, read_only: bool = False
    ) -> Awaitable[RedisKeyValueStore]:
        return RedisKeyValueStore.open(
            through(self.url, by) if by else self.url, timeout_s=timeout_s, read_only=read_only
        )

    def kill(self) -> None:
        self.service.services.kill("redis")

    def start(self) -> None:
        self.service.services.start("redis")

    def freeze(self) -> None:
        self.service.services.freeze("redis")

    def thaw(self) -> None:
        self.service.services.thaw("redis")

    def cut_connections(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            cast("Admin", client).execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    @property
    def secret(self) -> str:
        return urlsplit(self.url).password or "?"


@pytest.fixture
def server(redis_url: str, redis_service: RedisService) -> RedisServer:
    return RedisServer(redis_url, redis_service)


class Admin(Protocol):
    """Commands of tests beside the store; the client's own methods are only half typed."""

    def execute_command(self, *words: str) -> dict[bytes, bytes]: ...

    def set(self, key: str, value: str) -> object: ...

    def flushdb(self) -> object: ...

    def script_flush(self) -> object: ...

    def config_resetstat(self) -> object: ...

    def info(self, section: str) -> dict[str, dict[str, int]]: ...


@pytest.fixture
def admin(redis_url: str) -> Iterator[Admin]:
    with redis.Redis.from_url(redis_url) as client:
        yield cast("Admin", client)


@pytest.fixture
def faulty(server: RedisServer, faulty_path_to: Callable[[str], FaultyPath]) -> FaultyPath:
    return faulty_path_to(urlsplit(server.url).netloc.rpartition("@")[2])


class TestRedisOverTheNetwork(NetworkedKeyValueStoreContract):
    pass


@contextlib.contextmanager
def configured(admin: Admin, **settings: str) -> Iterator[None]:
    before = {name: admin.execute_command("CONFIG", "GET", name)[name.encode()].decode() for name in settings}
    for name, value in settings.items():
        admin.execute_command("CONFIG", "SET", name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            admin.execute_command("CONFIG", "SET", name, value)


async def test_cancelled_read_raises_the_cancellation(redis_url: str) -> None:
    async with opened(redis_url) as store:

        async def read_on() -> None:
            for _ in range(20):
                await store.get("v1/any")

        for turns in range(200):
            reading = asyncio.create_task(read_on())
            for _ in range(turns % 40):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()


async def test_wrong_credentials_are_an_error_that_is_not_retriable(redis_url: str, server: RedisServer) -> None:
    for url in (redis_url.replace(server.secret, "a-wrong-one"), redis_url.replace(f":{server.secret}@", "")):
        with pytest.raises(MetadataError) as caught:
            await RedisKeyValueStore.open(url)
        assert not caught.value.retriable
        assert "password" in caught.value.remedy
        assert "a-wrong-one" not in str(caught.value)


async def test_missing_database_is_named_with_a_remedy(redis_url: str) -> None:
    with pytest.raises(MetadataError, match="out of range") as caught:
        await RedisKeyValueStore.open(urlsplit(redis_url)._replace(path="/4711").geturl())
    assert "number" in caught.value.remedy


@pytest.mark.parametrize("url", ["mysql://host/1", "no address at all", "redis://host:port/0", "redis://[::1/0"])
async def test_malformed_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(MetadataError) as caught:
        await RedisKeyValueStore.open(url)
    assert "rediss://user" in caught.value.remedy


async def test_a_database_of_another_format_or_with_foreign_keys_is_refused(redis_url: str, admin: Admin) -> None:
    admin.set("{tierd}:format", "2")
    with pytest.raises(MetadataError, match="format b'2'"):
        await RedisKeyValueStore.open(redis_url)
    admin.flushdb()
    admin.set("{tierd}:rows", "something else")
    with pytest.raises(MetadataError, match="WRONGTYPE") as caught:
        await RedisKeyValueStore.open(redis_url)
    assert "database of its own" in caught.value.remedy


async def test_user_without_all_write_rights_is_refused_when_the_store_opens(
    redis_url: str, admin: Admin, server: RedisServer
) -> None:
    admin.execute_command("ACL", "SETUSER", "half", "on", ">half", "~*", "+@all", "-zrem")
    try:
        with pytest.raises(MetadataError) as caught:
            await RedisKeyValueStore.open(redis_url.replace(f"//:{server.secret}@", "//half:half@"))
        assert "let tierd's user run" in caught.value.remedy
    finally:
        admin.execute_command("ACL", "DELUSER", "half")


async def test_user_with_only_the_documented_rights_is_accepted(
    redis_url: str, admin: Admin, server: RedisServer
) -> None:
    rights = "+@connection +@scripting +@sortedset +get +set +incrby +wait"
    admin.execute_command("ACL", "SETUSER", "daemon", "on", ">daemon", "~{tierd}:*", *rights.split())
    try:
        async with opened(redis_url.replace(f"//:{server.secret}@", "//daemon:daemon@")) as store:
            await store.apply(Batch([Put("a", b"1")], [Expect("a", None)]))
            await store.apply(Batch([Delete("a")], [Expect("a", b"1")]))
            assert await store.scan("") == []
    finally:
        admin.execute_command("ACL", "DELUSER", "daemon")


async def test_server_that_may_lose_writes_in_a_crash_is_warned_about_once(redis_url: str, admin: Admin) -> None:
    with configured(admin, appendfsync="everysec"), structlog.testing.capture_logs() as logs:
        async with opened(redis_url):
            pass
    assert [(entry["event"], entry["appendfsync"]) for entry in logs] == [("metadata_may_be_lost", "everysec")]
    with structlog.testing.capture_logs() as logs:
        async with opened(redis_url):
            pass
    assert logs == []


async def test_server_without_memory_writes_no_part_of_a_batch(redis_url: str, admin: Admin) -> None:
    async with opened(redis_url) as store:
        await store.apply(Batch([Put("a", b"1"), Put("b", b"1")]))
        before = await store.scan("")
        with configured(admin, maxmemory="1"):
            with pytest.raises(BackendUnavailableError) as caught:
                await store.apply(Batch([Delete("b"), Put("a", b"2"), Put("c", b"2")]))
            assert "maxmemory" in caught.value.remedy
            assert await store.scan("") == before
        await store.apply(Batch([Put("a", b"2")], [Expect("a", b"1")]))


async def test_server_refuses_writes_as_a_replica_and_takes_them_again_as_a_primary(
    redis_url: str, admin: Admin
) -> None:
    async with opened(redis_url) as store:
        await store.apply(Batch([Put("a", b"1")]))
        admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(BackendUnavailableError) as caught:
                await store.apply(Batch([Delete("a")]))
            assert "primary" in caught.value.remedy
        finally:
            admin.execute_command("REPLICAOF", "NO", "ONE")
        await store.apply(Batch([Put("a", b"2")], [Expect("a", b"1")]))


async def test_scripts_are_loaded_again_into_a_server_that_lost_them(redis_url: str, admin: Admin) -> None:
    async with opened(redis_url) as store:
        for number in range(3):
            admin.script_flush()
            await store.apply(Batch([Put("a", str(number).encode())]))
            admin.script_flush()
            assert await store.get("a") == str(number).encode()


async def test_batch_with_too_few_replicas_is_of_unknown_outcome(redis_url: str, redis_service: RedisService) -> None:
    async with opened(redis_url, replicas=1, timeout_s=1) as store:
        with pytest.raises(OutcomeUnknownError, match="0 of 1 replicas") as caught:
            await store.apply(Batch([Put("a", b"1")]))
        assert "metadata.redis.replicas" in caught.value.remedy
        with pytest.raises(BackendUnavailableError):  # the expected value may yet be lost
            await store.apply(Batch([], [Expect("a", None)]))
        assert await store.get("a") == b"1"
    redis_service.services.start("redis-replica")
    try:
        async with opened(redis_url, replicas=1, timeout_s=1) as store:
            await recovered(lambda: store.apply(Batch([Put("a", b"2")])))
            await store.apply(Batch([Put("a", b"3")], [Expect("a", b"2")]))
    finally:
        redis_service.services.stop("redis-replica")


async def test_batch_is_of_unknown_outcome_without_the_right_to_wait_for_replicas(
    redis_url: str, admin: Admin, server: RedisServer
) -> None:
    admin.execute_command("ACL", "SETUSER", "nowait", "on", ">nowait", "~*", "+@all", "-wait")
    try:
        async with opened(redis_url.replace(f"//:{server.secret}@", "//nowait:nowait@"), replicas=1) as store:
            with pytest.raises(OutcomeUnknownError) as caught:
                await store.apply(Batch([Put("a", b"1")], [Expect("a", None)]))
            assert "+wait" in caught.value.remedy
            assert await store.get("a") == b"1"
    finally:
        admin.execute_command("ACL", "DELUSER", "nowait")


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:pa/hunter2@127.0.0.1:1/0",
        "redis://user:hunter2#x@127.0.0.1:1/0",
        "redis://user:hunter2?x@127.0.0.1:1/0",
        "redis://user:x?hunter2@127.0.0.1:1/0",
        "redis://user:a@b/hunter2@127.0.0.1:1/0",
        "redis://user:x[hunter2]@127.0.0.1:1/0",
        "user:hunter2@127.0.0.1:1",
    ],
)
async def test_password_that_breaks_the_address_is_not_in_the_error(url: str) -> None:
    with pytest.raises((MetadataError, BackendUnavailableError)) as caught:
        await RedisKeyValueStore.open(url, timeout_s=1)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_scan_begins_again_after_more_changes_than_the_server_remembers(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(redis_url) as store, opened(redis_url) as other:
        await store.apply(Batch([Put(f"k{number:03}", b"0") for number in range(300)]))
        monkeypatch.setattr(redis_store, "_ROWS_PER_PAGE", 100)
        read, scans = redis_store._Snapshot.read, 0

        async def overtaken(snapshot: redis_store._Snapshot, *arguments: object) -> list[bytes]:
            nonlocal scans
            found: list[bytes] = await read(snapshot, *arguments)  # type: ignore[arg-type]  # passed on as they came
            if snapshot._pages == 1:
                scans += 1
                many = [Put(f"other{number:05}", str(scans).encode()) for number in range(scripts.CHANGES_KEPT)]
                await other.apply(Batch([*many, Put("k000", str(scans).encode()), Put("k299", str(scans).encode())]))
            return found

        monkeypatch.setattr(redis_store._Snapshot, "read", overtaken)
        pairs = dict(await store.scan("k"))
        assert scans == 3
        assert len(pairs) == 300
        assert pairs["k000"] == pairs["k299"]


async def test_scan_across_a_failover_does_not_mix_rows_of_both_servers(
    redis_url: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new primary does not have the last writes of the old one."""
    async with opened(redis_url) as store:
        await store.apply(Batch([Put(f"k{number}", b"0") for number in range(4)]))
        await store.apply(Batch([Put(f"k{number}", b"lost") for number in range(4)]))
        monkeypatch.setattr(redis_store, "_ROWS_PER_PAGE", 2)
        read = redis_store._Snapshot.read
        failed_over = False

        async def overtaken(snapshot: redis_store._Snapshot, *arguments: object) -> list[bytes]:
            nonlocal failed_over
            found: list[bytes] = await read(snapshot, *arguments)  # type: ignore[arg-type]  # passed on as they came
            if not failed_over:
                failed_over = True
                admin.flushdb()
                await store.apply(Batch([Put(f"k{number}", b"0") for number in range(4)]))
            return found

        monkeypatch.setattr(redis_store._Snapshot, "read", overtaken)
        assert await store.scan("k") == [(f"k{number}", b"0") for number in range(4)]


async def test_scripts_read_at_most_one_page(redis_url: str, admin: Admin) -> None:
    async with opened(redis_url) as store:
        for start in range(0, 30_000, 5000):
            await store.apply(Batch([Put(f"k{start + number:05}", bytes(300)) for number in range(5000)]))
        admin.config_resetstat()
        assert len(await store.scan("k")) == 30_000
        calls = admin.info("commandstats")["cmdstat_zrangebylex"]["calls"]
    assert calls == 31


async def test_missing_package_is_named_with_the_command_that_installs_it() -> None:
    await missing_package_is_named("redis", "redis", "RedisKeyValueStore.open('redis://h')")
