"""Stores: what each kind keeps, wipes and refuses (changelog-restore 3.5 and 3.9)."""

import asyncio
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.restore.stores.store_fixtures import KINDS, ON_DISK, changes, content
from tierd.errors import install_extra
from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.stores.rocks_store import RocksStore
from tierd.restore.stores.sqlite_store import SqliteStore

KEYS = st.sampled_from([b"", b"a", b"b", b"\x00", b"offset", b"store_id", b"long" * 100])
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=20))), max_size=30)
BATCHES = st.lists(CHANGES.filter(bool), max_size=8)

on_disk = pytest.mark.parametrize("kind", ON_DISK)


@pytest.mark.parametrize("kind", KINDS)
async def test_store_says_whether_it_is_persistent_transactional_and_timestamped(kind: str) -> None:
    store = KINDS[kind]("counts", timestamped=True)
    assert (store.name, store.timestamped) == ("counts", True)
    assert not KINDS[kind]("counts").timestamped
    assert (store.persistent, store.transactional) == ((kind != "dict"),) * 2


@pytest.mark.spec("changelog-restore 58")
@pytest.mark.parametrize("kind", KINDS)
async def test_puts_and_deletes_are_applied_in_order_and_an_empty_value_is_a_value(tmp_path: Path, kind: str) -> None:
    store = KINDS[kind]("counts")
    await store.open(tmp_path / "counts")
    assert await store.is_empty()

    await store.restore_batch(changes([(b"a", b"1"), (b"b", b""), (b"a", None), (b"c", b"1"), (b"c", b"2")]), 4)

    assert not await store.is_empty()
    assert await store.stored_offset() == (None if kind == "dict" else 4)
    await store.close(clean=True)
    assert content(store, tmp_path / "counts") == {b"b": b"", b"c": b"2"}


@pytest.mark.spec("changelog-restore 64")
@given(batches=BATCHES)
@settings(max_examples=6, deadline=None)
def test_contents_are_identical_in_every_kind(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[bytes, bytes | None]]]
) -> None:
    root = tmp_path_factory.mktemp("stores")
    found = [asyncio.run(_restored(kind, root / kind, batches)) for kind in KINDS]
    expected: dict[bytes, bytes] = {}
    for key, value in (change for batch in batches for change in batch):
        expected.pop(key, None)
        if value is not None:
            expected[key] = value
    assert found == [expected] * len(found)


@pytest.mark.spec("changelog-restore 64")
@given(batches=BATCHES, data=st.data())
@settings(max_examples=6, deadline=None)
def test_contents_are_identical_when_batches_are_applied_again(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[bytes, bytes | None]]], data: st.DataObject
) -> None:
    """Replay from an earlier offset, as after a crash before the checkpoint (3.9)."""
    root = tmp_path_factory.mktemp("stores")
    again = batches[data.draw(st.integers(0, len(batches))) :]
    for kind in KINDS:
        once = asyncio.run(_restored(kind, root / f"{kind}-once", batches))
        assert asyncio.run(_restored(kind, root / f"{kind}-twice", [*batches, *again])) == once


async def _restored(
    kind: str, directory: Path, batches: Sequence[Sequence[tuple[bytes, bytes | None]]]
) -> dict[bytes, bytes]:
    store = KINDS[kind]("counts")
    await store.open(directory)
    for number, batch in enumerate(batches):
        await store.restore_batch(changes(batch), number)
    await store.close(clean=True)
    return content(store, directory)


@on_disk
async def test_data_offset_and_id_outlive_the_store(tmp_path: Path, kind: str) -> None:
    store = ON_DISK[kind]("counts")
    await store.open(tmp_path)
    store_id = await store.store_id()
    assert (store_id is not None, await store.stored_offset()) == (True, None)
    await store.restore_batch(changes([(b"a", b"1")]), 17)
    await store.close(clean=True)

    await store.open(tmp_path)
    assert (await store.stored_offset(), await store.store_id(), await store.is_empty()) == (17, store_id, False)
    await store.close(clean=False)


@on_disk
async def test_wipe_leaves_an_open_empty_store_with_another_id(tmp_path: Path, kind: str) -> None:
    store = ON_DISK[kind]("counts")
    await store.open(tmp_path)
    await store.restore_batch(changes([(b"a", b"1")]), 17)
    store_id = await store.store_id()

    await store.wipe()

    assert (await store.stored_offset(), await store.is_empty()) == (None, True)
    assert await store.store_id() not in {None, store_id}
    await store.restore_batch(changes([(b"b", b"2")]), 3)
    await store.close(clean=True)
    assert content(store, tmp_path) == {b"b": b"2"}
    assert not (tmp_path / ".wiping").exists()


@pytest.mark.spec("changelog-restore 62")
@on_disk
async def test_wipe_that_a_crash_has_interrupted_is_finished_by_the_next_open(tmp_path: Path, kind: str) -> None:
    store = ON_DISK[kind]("counts")
    await store.open(tmp_path)
    await store.restore_batch(changes([(b"a", b"1")]), 17)
    store_id = await store.store_id()
    await store.close(clean=True)
    files = sorted(path for path in tmp_path.iterdir())
    (tmp_path / ".wiping").touch()
    files[0].unlink()  # the crash came behind the first file

    await store.open(tmp_path)

    assert (await store.stored_offset(), await store.is_empty()) == (None, True)
    assert await store.store_id() != store_id
    await store.close(clean=True)
    assert not (tmp_path / ".wiping").exists()


@on_disk
async def test_directory_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(StoreFailedError, match=r"letters\.txt"):
        await ON_DISK[kind]("counts").open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


@on_disk
async def test_wipe_removes_the_files_of_the_store_and_no_others(tmp_path: Path, kind: str) -> None:
    store = ON_DISK[kind]("counts")
    await store.open(tmp_path)
    (tmp_path / "letters.txt").write_text("mine")
    await store.wipe()
    await store.close(clean=True)
    assert (tmp_path / "letters.txt").read_text() == "mine"


@on_disk
async def test_store_that_is_open_elsewhere_is_refused(tmp_path: Path, kind: str) -> None:
    store, other = ON_DISK[kind]("counts"), ON_DISK[kind]("counts")
    await store.open(tmp_path)
    with pytest.raises(StoreFailedError, match="another process"):
        await other.open(tmp_path)
    await store.close(clean=True)
    await other.open(tmp_path)
    await other.close(clean=True)


@on_disk
async def test_damaged_files_fail_with_the_name_of_the_store_and_can_be_wiped(tmp_path: Path, kind: str) -> None:
    store = ON_DISK[kind]("counts")
    await store.open(tmp_path)
    await store.restore_batch(changes([(b"a", b"1")]), 17)
    await store.close(clean=True)
    main = tmp_path / ("store.sqlite" if kind == "sqlite" else "CURRENT")
    main.write_bytes(b"damaged" * 1000)
    with pytest.raises(StoreFailedError, match="store counts"):
        await store.open(tmp_path)
    (tmp_path / ".wiping").touch()  # by hand, as the page on restores says
    await store.open(tmp_path)
    assert await store.is_empty()
    await store.close(clean=True)


@on_disk
async def test_second_close_does_nothing_and_calls_of_a_closed_store_are_refused(tmp_path: Path, kind: str) -> None:
    store = ON_DISK[kind]("counts")
    await store.open(tmp_path)
    await store.close(clean=True)
    await store.close(clean=True)
    with pytest.raises(StoreFailedError, match="not open"):
        await store.is_empty()


async def test_sqlite_file_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.sqlite")
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    with pytest.raises(StoreFailedError, match="no store of this version"):
        await SqliteStore("counts").open(tmp_path)


async def test_missing_package_of_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    for name in ("rocks_files", "rocks_database"):
        monkeypatch.delitem(sys.modules, f"tierd.restore.stores.{name}", raising=False)
    with pytest.raises(StoreFailedError, match="rocksdict") as refused:
        await RocksStore("counts").open(tmp_path)
    assert refused.value.remedy == install_extra("rocksdb")
