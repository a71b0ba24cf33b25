"""Groups of batches in one transaction of SQLite: every answer is true, whatever fails on the way."""

import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metadata.kv.batches import batches
from tierd.errors import OutcomeUnknownError, PreconditionFailedError, TierError
from tierd.metadata import Batch, Delete, DeletePrefix, Expect, Put
from tierd.metadata.kv import SqliteKeyValueStore
from tierd.metadata.kv.sqlite_file import SqliteFile

CONTENT = {"a": b"1", "b/1": b"1", "c": b""}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[SqliteFile]:
    with contextlib.closing(SqliteFile.open(path, timeout_s=5.0)) as file:
        file.apply_all([Batch([Put(key, value) for key, value in CONTENT.items()])])
        yield file


GROUP = [
    Batch([Put("x/1", b"1"), Put("x/2", b"1")]),
    Batch([Put("refused", b"1")], [Expect("a", b"other")]),
    Batch([Delete("a"), Put("y", b"1")], [Expect("a", b"1")]),
    Batch([Put("z", b"1")], [Expect("y", b"1")]),
]
WITH_PREFIX = [*GROUP, Batch([DeletePrefix("b/")])]


def described(outcome: TierError | None) -> object:
    if isinstance(outcome, PreconditionFailedError):
        return outcome.key, outcome.actual
    return outcome if outcome is None else type(outcome)


@given(group=st.lists(batches(), min_size=1, max_size=6))
@settings(max_examples=60)
def test_group_has_the_effect_and_the_answers_of_its_batches_one_by_one(group: list[Batch]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with opened(Path(folder, "group.db")) as file:
            together, rows = [described(outcome) for outcome in file.apply_all(group)], file.scan("")
        with opened(Path(folder, "single.db")) as file:
            singly = [described(file.apply_all([batch])[0]) for batch in group]
            assert (together, rows) == (singly, file.scan(""))


def test_bug_in_a_group_leaves_no_row_and_the_next_group_is_written(tmp_path: Path) -> None:
    lone_surrogate = "\ud800"
    with opened(tmp_path / "group.db") as file:
        with pytest.raises(UnicodeEncodeError):
            file.apply_all([Batch([Put("x", b"1")]), Batch([Put(lone_surrogate, b"1")])])
        with pytest.raises(UnicodeEncodeError):
            file.apply_all([Batch([Put("x", b"1")]), Batch([Put(lone_surrogate, b"1"), DeletePrefix("b/")])])
        assert file.apply_all([Batch([Put("y", b"1")])]) == [None]
        assert dict(file.scan("")) == CONTENT | {"y": b"1"}


class WatchedConnection(sqlite3.Connection):
    """Connection that calls ``before_statement`` first."""

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        self.before_statement()
        return super().execute(sql, parameters)  # type: ignore[arg-type]  # passed on as it came

    def executemany(self, sql: str, parameters: Iterable[object], /) -> sqlite3.Cursor:
        self.before_statement()
        return super().executemany(sql, parameters)  # type: ignore[arg-type]  # passed on as it came

    def before_statement(self) -> None:
        raise NotImplementedError


def connect_by(factory: type[WatchedConnection], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have connections that are opened from now on be of a class."""
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=factory, **kwargs))


class CrashingConnection(WatchedConnection):
    """Connection that copies its file and the log of that file, as a crash leaves them, before every statement."""

    path: Path | None = None
    images = 0

    def before_statement(self) -> None:
        if self.path is not None:
            self.images += 1
            _copy_image(self.path, self.path.with_name(f"image-{self.images}.db"))


def _copy_image(path: Path, image: Path) -> None:
    shutil.copyfile(path, image)
    shutil.copyfile(f"{path}-wal", f"{image}-wal")


def _rows_after_a_crash(image: Path) -> dict[str, bytes]:
    with contextlib.closing(SqliteFile.open(image, timeout_s=5.0)) as file:
        return dict(file.scan(""))


AFTER_GROUP = {"b/1": b"1", "c": b"", "x/1": b"1", "x/2": b"1", "y": b"1", "z": b"1"}
AFTER_WITH_PREFIX = {key: value for key, value in AFTER_GROUP.items() if key != "b/1"}


@pytest.mark.parametrize("is_together", [True, False], ids=["together", "one by one"])
def test_crash_at_any_statement_of_a_group_leaves_nothing_of_it_and_afterwards_all_of_it(
    is_together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "group.db"
    connect_by(CrashingConnection, monkeypatch)
    with opened(path) as file:
        connection = file._connection
        assert isinstance(connection, CrashingConnection)
        connection.path = path
        file.apply_all(GROUP if is_together else WITH_PREFIX)
        connection.path = None
        _copy_image(path, tmp_path / "after.db")
        images = [tmp_path / f"image-{number}.db" for number in range(1, connection.images + 1)]
    assert len(images) >= 5
    assert all(_rows_after_a_crash(image) == CONTENT for image in images)
    assert _rows_after_a_crash(tmp_path / "after.db") == (AFTER_GROUP if is_together else AFTER_WITH_PREFIX)


def test_log_torn_at_any_byte_leaves_a_group_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "group.db"
    large = [Batch([Put(f"k/{number}/{row}", bytes(900)) for row in range(2)]) for number in range(8)]
    with opened(path) as file:
        before = Path(f"{path}-wal").stat().st_size
        file.apply_all(large)
        _copy_image(path, tmp_path / "whole.db")
    log = Path(f"{tmp_path / 'whole.db'}-wal").read_bytes()
    whole = CONTENT | {write.key: write.value for batch in large for write in batch.writes if isinstance(write, Put)}
    for length in [*range(before, len(log), 1499), len(log) - 1, len(log)]:
        image = tmp_path / f"torn-{length}.db"
        shutil.copyfile(tmp_path / "whole.db", image)
        Path(f"{image}-wal").write_bytes(log[:length])
        assert _rows_after_a_crash(image) == (whole if length == len(log) else CONTENT)


async def test_cancelled_caller_takes_no_neighbour_along_and_leaves_its_batch_whole_or_absent(tmp_path: Path) -> None:
    is_cancelled, turns = True, 0
    while is_cancelled:
        turns += 1
        store = await SqliteKeyValueStore.open(tmp_path / f"{turns}.db")
        calls = [asyncio.create_task(store.apply(Batch([Put(f"{n}/a", b""), Put(f"{n}/b", b"")]))) for n in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        is_cancelled = calls[2].cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        rows = [key for key, _ in await store.scan("")]
        await store.close()
        assert [outcome for number, outcome in enumerate(outcomes) if number != 2] == [None] * 3
        assert [key for key in rows if not key.startswith("2/")] == ["0/a", "0/b", "1/a", "1/b", "3/a", "3/b"]
        assert sum(key.startswith("2/") for key in rows) in ({0, 2} if is_cancelled else {2})
    assert turns > 1


class FailingConnection(WatchedConnection):
    """Connection whose statement number ``at``, counted from 1, fails; with ``ends``, SQLite ends the transaction."""

    at = 0
    ends = False
    statements = 0

    def before_statement(self) -> None:
        self.statements += 1
        if self.statements == self.at:
            if self.ends and self.in_transaction:
                sqlite3.Connection.execute(self, "ROLLBACK")  # not counted
            raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("group", [GROUP, WITH_PREFIX], ids=["together", "one by one"])
def test_failure_of_any_statement_leaves_each_batch_whole_or_absent_as_its_answer_says(
    group: list[Batch], ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, has_failed = 0, True
    connect_by(FailingConnection, monkeypatch)
    while has_failed:
        number += 1
        path = tmp_path / f"{number}.db"
        with opened(path) as file:
            connection = file._connection
            assert isinstance(connection, FailingConnection)
            connection.statements, connection.at, connection.ends = 0, number, ends
            outcomes = file.apply_all(group)
            has_failed = connection.statements >= number
            connection.at = 0
        with contextlib.closing(SqliteFile.open_read_only(path, timeout_s=5.0)) as file:
            rows = dict(file.scan(""))
        for batch, outcome in zip(group, outcomes, strict=True):
            if not isinstance(outcome, OutcomeUnknownError):
                _require(rows, batch, is_there=outcome is None)
    assert number > 5


def _require(rows: dict[str, bytes], batch: Batch, *, is_there: bool) -> None:
    for write in batch.writes:
        match write:
            case Put(key, value):
                assert (rows.get(key) == value) is is_there
            case Delete(key):
                assert (key not in rows) is is_there
            case DeletePrefix(prefix):
                assert (not any(key.startswith(prefix) for key in rows)) is is_there
