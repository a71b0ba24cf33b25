import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tierd.errors import BackendUnavailableError, MetadataError, OutcomeUnknownError
from tierd.metadata import Batch, Expect, KeyValueStore, Put
from tierd.metadata.kv import SqliteKeyValueStore
from tierd.metadata.kv.refusals import WritesRefusedError
from tierd.testing import KeyValueStoreContract, cancel_at


@contextlib.asynccontextmanager
async def opened(path: Path, *, read_only: bool = False, timeout_s: float = 5.0) -> AsyncIterator[SqliteKeyValueStore]:
    store = await SqliteKeyValueStore.open(path, read_only=read_only, timeout_s=timeout_s)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


class TestSqliteKeyValueStore(KeyValueStoreContract):
    @pytest.fixture
    async def store(self, path: Path) -> AsyncIterator[KeyValueStore]:
        async with opened(path) as store:
            yield store

    @pytest.fixture
    async def other(self, store: KeyValueStore, path: Path) -> AsyncIterator[KeyValueStore]:
        async with opened(path) as other:
            yield other


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def size_of(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


async def filled(path: Path, count: int = 2000) -> None:
    async with opened(path) as store:
        await store.apply(Batch([Put(f"k{n:06}", bytes(200)) for n in range(count)]))


async def test_values_are_read_after_the_store_is_opened_again(path: Path) -> None:
    await filled(path, 3)
    async with opened(path) as store:
        assert [key for key, _ in await store.scan("")] == ["k000000", "k000001", "k000002"]


async def test_closed_store_leaves_no_other_file_beside_its_own(path: Path) -> None:
    await filled(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["metadata.db"]


async def test_two_stores_that_create_the_file_at_one_time_share_it(path: Path) -> None:
    async with opened(path) as one, opened(path) as other:
        await one.apply(Batch([Put("a", b"1")]))
        assert await other.get("a") == b"1"


async def test_writes_are_synced_to_disk_before_they_are_acknowledged(path: Path) -> None:
    async with opened(path) as store:
        connection = store._file._connection
        answers = await asyncio.wrap_future(
            store._worker.submit(
                lambda: [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
            )
        )
    assert answers == ["wal", 2]


async def test_waiting_batches_share_a_transaction(path: Path) -> None:
    async with opened(path) as store:
        statements: list[str] = []
        store._file._connection.set_trace_callback(statements.append)
        await asyncio.gather(*(store.apply(Batch([Put(f"k{n}", b"")])) for n in range(300)))
        assert len(await store.scan("k")) == 300
    assert sum(statement == "COMMIT" for statement in statements) <= 4


async def test_reads_of_other_processes_and_writes_of_the_daemon_do_not_block_each_other(path: Path) -> None:
    async with opened(path) as daemon:
        await daemon.apply(Batch([Put("a", b"1")]))
        async with opened(path, read_only=True) as reader:
            assert await reader.get("a") == b"1"
            await daemon.apply(Batch([Put("a", b"2")]))
            assert await reader.get("a") == b"2"


async def test_write_of_a_read_only_store_is_refused(path: Path) -> None:
    await filled(path, 1)
    async with opened(path, read_only=True) as reader:
        with pytest.raises(BackendUnavailableError):
            await reader.apply(Batch([Put("a", b"1")]))
        assert await reader.get("a") is None


async def test_read_only_open_of_a_missing_file_is_refused_and_creates_no_file(path: Path) -> None:
    with pytest.raises(MetadataError, match="no such metadata file"):
        await SqliteKeyValueStore.open(path, read_only=True)
    assert size_of(path) is None


CRASH = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from tierd.metadata.kv import Batch, Put, SqliteKeyValueStore

    async def main() -> None:
        store = await SqliteKeyValueStore.open(Path(sys.argv[1]))
        for number in range(50):
            await store.apply(Batch([Put(f"k{number:02}", b"v")]))
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("keep_shm", [True, False])
async def test_batches_acknowledged_before_a_kill_are_read_afterwards(
    path: Path, read_only: bool, keep_shm: bool
) -> None:
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", textwrap.dedent(CRASH), str(path)])
    assert killed.returncode == -signal.SIGKILL
    assert path.with_name("metadata.db-wal").stat().st_size > 0
    if not keep_shm:
        path.with_name("metadata.db-shm").unlink()
    async with opened(path, read_only=read_only) as store:
        assert [key for key, _ in await store.scan("k")] == [f"k{number:02}" for number in range(50)]


async def test_closed_store_is_read_without_the_right_to_create_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(path, 2)
    connect, asked = sqlite3.connect, list[str]()

    def as_if_the_directory_were_read_only(
        name: str, *, timeout: float, isolation_level: None, check_same_thread: bool, uri: bool
    ) -> sqlite3.Connection:
        asked.append(name)
        target = name if "immutable=1" in name else f"file:{path.parent}/absent?mode=ro"
        return connect(target, timeout, 0, isolation_level, check_same_thread, uri=uri)

    monkeypatch.setattr(sqlite3, "connect", as_if_the_directory_were_read_only)
    async with opened(path, read_only=True) as store:
        assert len(await store.scan("")) == 2
    assert len(asked) == 2


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def damage(path: Path, position: int, data: bytes) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:position] + data + content[position + len(data) :])


def damage_last(path: Path, text: bytes, data: bytes) -> None:
    damage(path, path.read_bytes().rindex(text), data)


async def test_file_that_is_no_database_is_refused_with_its_name_and_a_remedy(path: Path) -> None:
    write(path, b"not a database at all" * 1000)
    with pytest.raises(MetadataError, match=r"metadata\.db.*damaged") as caught:
        await SqliteKeyValueStore.open(path)
    assert "restore" in caught.value.remedy


async def test_open_finds_a_damaged_page(path: Path) -> None:
    await filled(path)
    damage(path, 8 * 4096, b"\xff" * 4096)
    with pytest.raises(MetadataError, match="damaged"):
        await SqliteKeyValueStore.open(path)


async def test_open_finds_a_truncated_file(path: Path) -> None:
    await filled(path)
    halve(path)
    with pytest.raises(MetadataError, match="damaged"):
        await SqliteKeyValueStore.open(path)


async def test_damage_found_by_a_read_is_reported(path: Path) -> None:
    await filled(path)
    damage(path, 8 * 4096, b"\xff" * 4096)
    async with opened(path, read_only=True) as reader:
        with pytest.raises(MetadataError, match="damaged"):
            await reader.scan("")


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("flipped", [b"end", b"19", b"v1/c/seg"])
async def test_flipped_bit_in_a_row_is_found_although_sqlite_does_not_find_it(
    path: Path, read_only: bool, flipped: bytes
) -> None:
    row = Put("v1/c/seg/a", b'\x01{"end":19}')
    async with opened(path) as store:
        await store.apply(Batch([row, Put("v1/c/seg/b", b"other")]))
    damage_last(path, flipped, bytes([flipped[0] ^ 1]))
    async with opened(path, read_only=read_only) as store:
        with pytest.raises(MetadataError, match=r"metadata\.db.*damaged.*checksum") as caught:
            await store.scan("")
        assert not caught.value.retriable
        assert "restore" in caught.value.remedy


async def test_batch_that_expects_a_damaged_row_is_refused(path: Path) -> None:
    async with opened(path) as store:
        await store.apply(Batch([Put("a", b"revision 7")]))
    damage_last(path, b"7", b"6")
    async with opened(path) as store:
        with pytest.raises(MetadataError, match="damaged"):
            await store.apply(Batch([Put("a", b"revision 8")], [Expect("a", b"revision 6")]))


async def test_undecodable_text_is_damage_and_not_retriable(path: Path) -> None:
    async with opened(path) as store:
        await store.apply(Batch([Put("some-key", b"")]))
    damage_last(path, b"some-key", b"\xff")
    async with opened(path) as store:
        with pytest.raises(MetadataError, match="damaged"):
            await store.scan("")


async def test_write_ahead_log_of_a_lost_file_is_not_applied_to_a_new_file(path: Path) -> None:
    path.with_name("metadata.db-wal").write_bytes(b"what a killed tierd left")
    with pytest.raises(MetadataError, match=r"missing, but metadata\.db-wal is there") as caught:
        await SqliteKeyValueStore.open(path)
    assert "restore" in caught.value.remedy
    assert size_of(path) is None


async def test_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for read_only in (True, False):
        with pytest.raises(BackendUnavailableError, match="too long"):
            await SqliteKeyValueStore.open(tmp_path / ("m" * 300), read_only=read_only)


async def test_bug_in_the_worker_is_raised_to_the_waiting_caller(path: Path) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    async with opened(path) as store:
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(store._read(broken), timeout=60)
        assert await store.get("a") is None


@pytest.mark.parametrize("read_only", [True, False])
async def test_empty_file_is_damage_and_not_a_new_store(path: Path, read_only: bool) -> None:
    write(path, b"")
    with pytest.raises(MetadataError, match="file is empty"):
        await SqliteKeyValueStore.open(path, read_only=read_only)
    assert size_of(path) == 0


async def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE places (url TEXT)")
    with pytest.raises(MetadataError, match="not tierd's"):
        await SqliteKeyValueStore.open(path)


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_file_of_another_schema_version_is_refused(path: Path, read_only: bool) -> None:
    await filled(path, 1)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version=2")
    with pytest.raises(MetadataError, match="version 2, this tierd knows version 1"):
        await SqliteKeyValueStore.open(path, read_only=read_only)


async def test_path_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="absent/metadata"):
        await SqliteKeyValueStore.open(tmp_path / "absent" / "metadata.db")


@pytest.mark.spec("remote-tiering 104")
async def test_file_locked_by_another_program_is_a_retriable_error_and_later_writes_succeed(path: Path) -> None:
    async with opened(path, timeout_s=0.01) as store:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(BackendUnavailableError, match="locked") as caught:
                await store.apply(Batch([Put("a", b"1")]))
            assert caught.value.retriable
            other.execute("ROLLBACK")
        await store.apply(Batch([Put("a", b"2")]))
        assert await store.get("a") == b"2"


async def test_batch_on_a_full_disk_is_not_written_and_later_batches_are(path: Path) -> None:
    async with opened(path) as store:
        await store.apply(Batch([Put("a", b"1")]))
        connection = store._file._connection
        await asyncio.wrap_future(store._worker.submit(connection.execute, "PRAGMA max_page_count=8"))
        big, small = Batch([Put("b", bytes(200_000))]), Batch([Put("c", b"2")])
        outcomes = await asyncio.gather(store.apply(big), store.apply(small), return_exceptions=True)
        assert isinstance(outcomes[0], WritesRefusedError)
        assert "room" in outcomes[0].remedy
        await asyncio.wrap_future(store._worker.submit(connection.execute, "PRAGMA max_page_count=100000"))
        assert await store.get("b") is None
        await store.apply(big)
        assert await store.get("b") == bytes(200_000)


async def test_batch_that_fails_midway_is_undone_and_other_batches_are_written(path: Path) -> None:
    async with opened(path) as store:
        connection = store._file._connection
        limit = (sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        await asyncio.wrap_future(store._worker.submit(connection.setlimit, *limit))
        batches = [Batch([Put("a", b"1")]), Batch([Put("x", b""), Put("b", bytes(200_000))]), Batch([Put("c", b"3")])]
        outcomes = await asyncio.gather(*map(store.apply, batches), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), BackendUnavailableError, type(None)]
        assert await store.scan("") == [("a", b"1"), ("c", b"3")]


class FailingUndo(sqlite3.Connection):
    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        if sql == "ROLLBACK TO batch":
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, parameters)  # type: ignore[arg-type]  # passed on as it came


async def test_batch_that_cannot_be_undone_fails_the_batches_of_its_group(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=FailingUndo, **kwargs))
    async with opened(path) as store:
        connection = store._file._connection
        await asyncio.wrap_future(store._worker.submit(connection.setlimit, sqlite3.SQLITE_LIMIT_LENGTH, 100_000))
        half = Batch([Put("x", b""), Put("b", bytes(200_000))])
        _, *outcomes = await asyncio.gather(
            store.get("a"), store.apply(Batch([Put("a", b"1")])), store.apply(half), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [BackendUnavailableError, BackendUnavailableError]
        assert await store.scan("") == []


class FailingCommit(sqlite3.Connection):
    code = 0

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.code and self.in_transaction and self.total_changes > self.before:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self.code
            raise error
        return super().execute(sql, parameters)  # type: ignore[arg-type]  # passed on as it came

    before = 0


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, OutcomeUnknownError),
        (sqlite3.SQLITE_IOERR_WRITE, OutcomeUnknownError),
        (sqlite3.SQLITE_FULL, WritesRefusedError),
    ],
)
async def test_failed_commit_is_of_unknown_outcome_except_on_a_full_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=FailingCommit, **kwargs))
    async with opened(path) as store:
        connection = store._file._connection
        assert isinstance(connection, FailingCommit)
        connection.code = code
        refused = Batch([Put("b", b"")], [Expect("a", None)])
        written = Batch([Put("a", b"1")])
        # The read keeps the worker busy, so that both batches share a transaction.
        _, *outcomes = await asyncio.gather(
            store.get("a"), store.apply(written), store.apply(refused), return_exceptions=True
        )
        # The first batch may not have happened, so the refusal of the second says only that no row was written.
        assert [type(outcome) for outcome in outcomes] == [expected, BackendUnavailableError]
        connection.code = 0
        assert await store.scan("") == []
        await store.apply(Batch([Put("a", b"2")]))
        assert await store.get("a") == b"2"


async def test_a_cancelled_call_leaves_the_store_usable(path: Path) -> None:
    async with opened(path) as store:
        suspension = 1
        while await cancel_at(suspension, lambda: store.apply(Batch([Put("a", b"1")]))):
            suspension += 1
        assert suspension > 1
        assert await store.get("a") == b"1"


async def test_cancelled_calls_are_dropped_while_the_disk_hangs(path: Path) -> None:
    answering = threading.Event()
    async with opened(path) as store:
        store._worker.submit(answering.wait, 30)
        calls = [asyncio.create_task(store.apply(Batch([Put(f"k{n}", b"")]))) for n in range(100)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        await asyncio.sleep(0)
        assert store._waiting == []
        answering.set()
        assert await store.get("k99") is None


async def test_close_waits_for_requested_batches(path: Path) -> None:
    store = await SqliteKeyValueStore.open(path)
    calls = [asyncio.ensure_future(store.apply(Batch([Put(f"k{n:04}", b"")]))) for n in range(700)]
    await asyncio.sleep(0)
    await store.close()
    assert all(call.done() for call in calls)
    async with opened(path) as store:
        assert len(await store.scan("k")) == 700


async def test_store_opens_after_a_cancellation_at_any_await_of_open(path: Path) -> None:
    stores: list[SqliteKeyValueStore] = []

    async def open_it() -> None:
        stores.append(await SqliteKeyValueStore.open(path))

    suspension = 1
    while await cancel_at(suspension, open_it):
        suspension += 1
    assert suspension > 1
    await stores[0].apply(Batch([Put("a", b"1")]))
    await stores[0].close()
