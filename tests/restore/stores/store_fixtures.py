"""Stores for tests: the kinds, and the content of a store's files."""

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

from rocksdict import Options, Rdict

from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.stores.dict_store import DictStore
from tierd.restore.stores.rocks_store import RocksStore
from tierd.restore.stores.sqlite_store import SqliteStore

Store = DictStore | SqliteStore | RocksStore
MakeStore = Callable[..., Store]

KINDS: dict[str, MakeStore] = {"dict": DictStore, "sqlite": SqliteStore, "rocks": RocksStore}
ON_DISK: dict[str, Callable[..., SqliteStore | RocksStore]] = {"sqlite": SqliteStore, "rocks": RocksStore}


def changes(pairs: Iterable[tuple[bytes, bytes | None]], *, base_offset: int = 0) -> ChangelogRecords:
    """Return records with these keys and values, a tombstone for None."""
    rows = list(pairs)
    return ChangelogRecords(
        offsets=[base_offset + n for n in range(len(rows))],
        timestamps_ms=[0] * len(rows),
        keys=[key for key, _ in rows],
        values=[value for _, value in rows],
        headers=[()] * len(rows),
        leader_epochs=[0] * len(rows),
        timestamp_types=["CreateTime"] * len(rows),
    )


def content(store: Store, directory: Path) -> dict[bytes, bytes]:
    """Return the keys and values of a closed store, read without tierd."""
    if isinstance(store, DictStore):
        return dict(store.data)
    if isinstance(store, SqliteStore):
        connection = sqlite3.connect(directory / "store.sqlite")
        try:
            return dict(connection.execute("SELECT key, value FROM data"))
        finally:
            connection.close()
    families = {name: Options(raw_mode=True) for name in ("default", "__meta")}
    database = Rdict(str(directory), Options(raw_mode=True), families)
    try:
        return {bytes(key): value for key, value in database.items() if isinstance(key, bytes)}
    finally:
        database.close()
