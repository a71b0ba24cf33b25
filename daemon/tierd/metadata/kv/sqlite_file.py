"""SqliteFile: one connection to a metadata file and everything that blocks on it.

The file is one ordered table. Used by one thread at a time.

Every row carries the CRC-32C of its key and value. SQLite keeps no checksum of its pages: it would return a value
with a flipped bit as it is, and one wrong digit of an offset hides records.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from tierd.errors import (
    BackendUnavailableError,
    MetadataError,
    OutcomeUnknownError,
    TierError,
)
from tierd.kernels import crc32c
from tierd.metadata.kv import sqlite_schema
from tierd.metadata.kv.batch_groups import group_effect
from tierd.metadata.kv.key_value_store import Batch, DeletePrefix, Put, end_of
from tierd.metadata.kv.sqlite_errors import code_of, damaged, translated

_SIZE_LIMIT: Final = f"PRAGMA journal_size_limit={64 << 20}"
_KEYS_PER_QUERY: Final = 500  # below SQLite's limit of parameters in every build
_PUT: Final = "INSERT OR REPLACE INTO kv (key, value, crc) VALUES (?, ?, ?)"
_DELETE: Final = "DELETE FROM kv WHERE key = ?"
_READ_ONLY_REFUSED: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM})


class SqliteFile:
    """An open metadata file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path, *, timeout_s: float) -> Self:
        """Open for reading and writing, making the file when there is none; recovers what a crash left in the WAL.

        Raises:
            MetadataError: the file is damaged, or is no metadata file of this version.
            BackendUnavailableError: it cannot be opened or is locked.
        """
        try:
            if not path.exists():
                sqlite_schema.require_no_stray_log(path)
                sqlite_schema.create(path)
            sqlite_schema.close_to_others(path)
            connection = _connect(path, "mode=rw", timeout_s)
        except (sqlite3.Error, OSError) as error:
            raise translated(path, error) from error
        return cls._checked(path, connection, ["PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", _SIZE_LIMIT])

    @classmethod
    def open_read_only(cls, path: Path, *, timeout_s: float) -> Self:
        """Open beside a running daemon, or after one that was killed; never changes a value.

        Reading a WAL file needs its shared-memory file: SQLite makes it where the directory is writable, and builds it
        in memory where not. Without a WAL and without the right to make one, the file alone is complete.

        Raises:
            MetadataError: the file is missing, damaged, or no metadata file of this version.
            BackendUnavailableError: it cannot be read.
        """
        try:
            path.stat()
        except FileNotFoundError as error:
            remedy = "start tierd once, or correct metadata.sqlite"
            raise MetadataError(f"{path}: no such metadata file", remedy=remedy) from error
        except OSError as error:
            raise translated(path, error) from error
        try:
            return cls._read_only(path, "mode=ro", timeout_s)
        except BackendUnavailableError as error:
            refused = isinstance(error.__cause__, sqlite3.Error) and code_of(error.__cause__) in _READ_ONLY_REFUSED
            if not refused or path.with_name(f"{path.name}-wal").exists():
                raise
            return cls._read_only(path, "mode=ro&immutable=1", timeout_s)

    @classmethod
    def _read_only(cls, path: Path, mode: str, timeout_s: float) -> Self:
        try:
            connection = _connect(path, mode, timeout_s)
        except sqlite3.Error as error:
            raise translated(path, error) from error
        return cls._checked(path, connection, ["PRAGMA query_only=ON"], thorough=False)

    @classmethod
    def _checked(
        cls, path: Path, connection: sqlite3.Connection, settings: Sequence[str], *, thorough: bool = True
    ) -> Self:
        try:
            sqlite_schema.require_ours(path, connection)
            for statement in settings:
                connection.execute(statement)
            if thorough:
                sqlite_schema.require_sound(path, connection)
        except (sqlite3.Error, OSError) as error:
            connection.close()
            raise translated(path, error) from error
        except TierError:
            connection.close()
            raise
        return cls(path, connection)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Read several keys from one snapshot."""
        with self._reading():
            return self._values(keys)

    def _values(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        found: dict[str, bytes] = {}
        for start in range(0, len(wanted), _KEYS_PER_QUERY):
            chunk = wanted[start : start + _KEYS_PER_QUERY]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT key, value, crc FROM kv WHERE key IN ({marks})"
            found.update(self._sound(self._connection.execute(query, chunk)))
        return found

    def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Read every pair below ``prefix``, in byte order."""
        with self._reading():
            if not prefix:
                return self._sound(self._connection.execute("SELECT key, value, crc FROM kv ORDER BY key"))
            query = "SELECT key, value, crc FROM kv WHERE key >= ? AND key < ? ORDER BY key"
            return self._sound(self._connection.execute(query, (prefix, end_of(prefix))))

    def _sound(self, rows: Iterable[tuple[object, object, object]]) -> list[tuple[str, bytes]]:
        pairs: list[tuple[str, bytes]] = []
        for key, value, crc in rows:
            if type(key) is not str or type(value) is not bytes or _checksum(key, value) != crc:
                raise damaged(self.path, f"the row {key} does not have its checksum")
            pairs.append((key, value))
        return pairs

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise translated(self.path, error) from error

    def apply_all(self, batches: Sequence[Batch]) -> list[TierError | None]:
        """Apply batches one after the other in one durable transaction, each of them wholly or not at all.

        Returns:
            Per batch, None when it is durable, or the error.
        """
        try:
            return self._apply_all(batches)
        except BaseException:  # a bug: the next group must be able to begin, without a row of this one
            self._abandon()
            raise

    def _apply_all(self, batches: Sequence[Batch]) -> list[TierError | None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = self._apply_together(batches)
        except sqlite3.Error as error:
            self._abandon()
            return [translated(self.path, error) for _ in batches]
        if outcomes is None:
            outcomes = []
            for batch in batches:
                outcomes.append(self._apply(batch))
                if not self._connection.in_transaction:  # the failure was so grave that SQLite ended the whole group
                    cause = outcomes[-1]
                    return [cause for _ in batches]
        failure = self._commit()
        if failure is None:
            return outcomes
        # A batch that was refused has written nothing, but the write that it was refused for may be lost, too.
        refused = BackendUnavailableError(str(failure), remedy=failure.remedy)
        return [failure if outcome is None else refused for outcome in outcomes]

    def _apply_together(self, batches: Sequence[Batch]) -> list[TierError | None] | None:
        """Write at once what the batches leave; None, in a transaction without writes, where each must be tried alone.

        Raises:
            sqlite3.Error: there is no transaction to go on with; nothing is written.
        """
        if any(isinstance(write, DeletePrefix) for batch in batches for write in batch.writes):
            return None
        try:
            effect = group_effect(batches, self._values({each.key for batch in batches for each in batch.expect}))
            rows = effect.rows.items()
            self._connection.executemany(_PUT, [(k, v, _checksum(k, v)) for k, v in rows if v is not None])
            self._connection.executemany(_DELETE, [(key,) for key, value in rows if value is None])
        except (MetadataError, sqlite3.Error):  # one of them may be at fault, and none shall suffer from another
            self._connection.rollback()
            self._connection.execute("BEGIN IMMEDIATE")
            return None
        return [*effect.outcomes]

    def _apply(self, batch: Batch) -> TierError | None:
        execute = self._connection.execute
        try:
            execute("SAVEPOINT batch")
            try:
                self._require_expected(batch)
                for write in batch.writes:
                    if isinstance(write, Put):
                        execute(_PUT, (write.key, write.value, _checksum(write.key, write.value)))
                    elif isinstance(write, DeletePrefix):
                        execute("DELETE FROM kv WHERE key >= ? AND key < ?", (write.prefix, end_of(write.prefix)))
                    else:
                        execute(_DELETE, (write.key,))
                execute("RELEASE batch")
            except BaseException:
                self._undo_batch()
                raise
        except MetadataError as error:
            return error
        except sqlite3.Error as error:
            return translated(self.path, error)
        return None

    def _undo_batch(self) -> None:
        """Undo the batch alone; where that fails, the whole group, because half a batch must never be committed."""
        if not self._connection.in_transaction:
            return
        try:
            self._connection.execute("ROLLBACK TO batch")
            self._connection.execute("RELEASE batch")
        except sqlite3.Error:
            self._connection.rollback()
            raise

    def _require_expected(self, batch: Batch) -> None:
        if (refusal := batch.refusal(lambda key: self._values((key,)).get(key))) is not None:
            raise refusal

    def _commit(self) -> TierError | None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._abandon()
            failure = translated(self.path, error)
            # Full or busy: the commit mark was never written. Otherwise it may be on disk, though we roll back.
            if code_of(error) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}:
                return failure
            return OutcomeUnknownError(f"{failure}, at commit", remedy=failure.remedy)
        return None

    def _abandon(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # already rolled back, or the next BEGIN will say so
            self._connection.rollback()

    def close(self) -> None:
        """Close the connection; the last one to close a file folds its WAL into it."""
        self._connection.close()


def _checksum(key: str, value: bytes) -> int:
    return crc32c(value, crc32c(key.encode()))


def _connect(path: Path, options: str, timeout_s: float) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    # No isolation level: transactions begin and end where this module says so. Threads may change, one at a time.
    return sqlite3.connect(uri, timeout=timeout_s, isolation_level=None, check_same_thread=False, uri=True)
