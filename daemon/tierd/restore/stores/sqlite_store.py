"""SqliteStore: a state store in one SQLite file, with its offset (changelog-restore 3.5).

::

    data      key BLOB, value BLOB            the records
    __offset  id 1, store_id, last_offset     one row; last_offset is NULL before the first batch
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.stores.disk_store import DiskStore
from tierd.restore.stores.store_files import StoreEngine

FILE_NAME: Final = "store.sqlite"
_FILE_NAMES: Final = re.compile(re.escape(FILE_NAME) + r"(-wal|-shm|-journal)?")
_APPLICATION_ID: Final = 0x74445253  # "tDRS"
_FORMAT: Final = 1
_PRAGMAS: Final = (
    "locking_mode=EXCLUSIVE",
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "cache_size=-65536",  # 64 MiB: keys come in any order
    "wal_autocheckpoint=16384",  # pages, 64 MiB: a page that changes often is written to the file once
)
_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE data (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE __offset (id INTEGER PRIMARY KEY CHECK (id = 1), store_id TEXT NOT NULL, last_offset INTEGER);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_FORMAT};
"""


class SqliteStore(DiskStore):
    """Store in one SQLite file. A batch and its offset are one transaction."""

    def __init__(self, name: str, *, timestamped: bool = False) -> None:
        engine = StoreEngine(_FILE_NAMES, lambda name, directory: SqliteFiles(name, directory / FILE_NAME))
        super().__init__(name, engine, timestamped=timestamped)


class SqliteFiles:
    """Open SQLite file. A power cut may take the newest batches, and no batch in part: ``flush`` makes all durable."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        with self._translated():
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def apply(self, records: ChangelogRecords, last_offset: int) -> None:
        """Set or delete every key in one transaction with the offset."""
        newest = dict(zip(records.keys, records.values, strict=True))
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO data VALUES (?, ?)",
                ((key, value) for key, value in newest.items() if value is not None),
            )
            connection.executemany(
                "DELETE FROM data WHERE key = ?", ((key,) for key, value in newest.items() if value is None)
            )
            connection.execute("UPDATE __offset SET last_offset = ?", (last_offset,))

    def stored_offset(self) -> int | None:
        """Return the last applied offset; None before the first batch."""
        return self._row()[1]

    def store_id(self) -> str:
        """Return the id of the file."""
        return self._row()[0]

    def is_empty(self) -> bool:
        """Return True if there is no key."""
        with self._translated():
            return self._connection.execute("SELECT 1 FROM data LIMIT 1").fetchone() is None

    def flush(self) -> None:
        """Write the log of SQLite into the file, and sync both."""
        with self._translated():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        """Close the file."""
        with self._translated():
            self._connection.close()

    def _prepare(self) -> None:
        for pragma in _PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}").fetchone()
        if not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            self._connection.executescript(_SCHEMA)
            self._connection.execute("INSERT INTO __offset VALUES (1, ?, NULL)", (str(uuid4()),))
            self._connection.execute("COMMIT")
        found = (self._pragma("application_id"), self._pragma("user_version"))
        if found != (_APPLICATION_ID, _FORMAT):
            raise StoreFailedError(
                self._name, f"{self._path} is no store of this version of tierd", remedy="name another directory"
            )

    def _pragma(self, name: str) -> int:
        value: int = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    def _row(self) -> tuple[str, int | None]:
        with self._translated():
            row = self._connection.execute("SELECT store_id, last_offset FROM __offset").fetchone()
        if row is None:
            raise StoreFailedError(self._name, f"{self._path} has no offset row", remedy="wipe the store")
        store_id, last_offset = row
        return store_id, last_offset

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreFailedError(self._name, f"{self._path}: {error}") from error
