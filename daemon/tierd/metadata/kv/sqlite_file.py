"""SqliteFile: one connection to a metadata file and everything that blocks on it.

The file is one ordered table. It is made under another name and linked into place when it is complete, so a file that
is empty or of another kind is never taken for a new store. Used by one thread at a time.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from tierd.errors import (
    BackendUnavailableError,
    MetadataError,
    OutcomeUnknownError,
    PreconditionFailedError,
    TierError,
)
from tierd.metadata.kv.base import Batch, Put

SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x74696572  # "tier"
_KEYS_PER_QUERY: Final = 500  # below SQLite's limit of parameters in every build
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_READ_ONLY_REFUSED: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM})
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "make room on the disk; tierd goes on by itself",
    sqlite3.SQLITE_BUSY: "end the other program that holds the file; tierd goes on by itself",
    sqlite3.SQLITE_LOCKED: "end the other program that holds the file; tierd goes on by itself",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for tierd's user",
    sqlite3.SQLITE_CANTOPEN: "check that the directory exists and that tierd's user may use it",
}


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
                _create(path)
            connection = _connect(path, "mode=rw", timeout_s)
        except (sqlite3.Error, OSError) as error:
            raise _translated(path, error) from error
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
        if not path.exists():
            raise MetadataError(f"{path}: no such metadata file", remedy="start tierd once, or correct metadata.sqlite")
        try:
            return cls._read_only(path, "mode=ro", timeout_s)
        except BackendUnavailableError as error:
            refused = isinstance(error.__cause__, sqlite3.Error) and _code(error.__cause__) in _READ_ONLY_REFUSED
            if not refused or path.with_name(f"{path.name}-wal").exists():
                raise
            return cls._read_only(path, "mode=ro&immutable=1", timeout_s)

    @classmethod
    def _read_only(cls, path: Path, mode: str, timeout_s: float) -> Self:
        try:
            connection = _connect(path, mode, timeout_s)
        except sqlite3.Error as error:
            raise _translated(path, error) from error
        return cls._checked(path, connection, ["PRAGMA query_only=ON"], thorough=False)

    @classmethod
    def _checked(
        cls, path: Path, connection: sqlite3.Connection, settings: Sequence[str], *, thorough: bool = True
    ) -> Self:
        try:
            _require_ours(path, connection)
            for statement in settings:
                connection.execute(statement)
            if thorough:
                _require_sound(path, connection)
        except (sqlite3.Error, TierError) as error:
            connection.close()
            if isinstance(error, TierError):
                raise
            raise _translated(path, error) from error
        return cls(path, connection)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Read several keys from one snapshot."""
        wanted = list(keys)
        found: dict[str, bytes] = {}
        with self._reading():
            for start in range(0, len(wanted), _KEYS_PER_QUERY):
                chunk = wanted[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(chunk))
                found.update(self._connection.execute(f"SELECT key, value FROM kv WHERE key IN ({marks})", chunk))
        return found

    def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Read every pair below ``prefix``, in byte order."""
        with self._reading():
            if not prefix:
                return self._connection.execute("SELECT key, value FROM kv ORDER BY key").fetchall()
            end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            query = "SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key"
            return self._connection.execute(query, (prefix, end)).fetchall()

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
            raise _translated(self.path, error) from error

    def apply_all(self, batches: Sequence[Batch]) -> list[TierError | None]:
        """Apply batches one after the other in one durable transaction, each of them wholly or not at all.

        Returns:
            Per batch, None when it is durable, or why it is not.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return [_translated(self.path, error) for _ in batches]
        outcomes: list[TierError | None] = []
        for batch in batches:
            outcomes.append(self._apply(batch))
            if not self._connection.in_transaction:  # the failure was so grave that SQLite ended the whole group
                cause = outcomes[-1]
                return [cause for _ in batches]
        failure = self._commit()
        if failure is None:
            return outcomes
        # A batch that was refused has written nothing, but what it was refused for may not have happened either.
        refused = BackendUnavailableError(str(failure), remedy=failure.remedy)
        return [failure if outcome is None else refused for outcome in outcomes]

    def _apply(self, batch: Batch) -> TierError | None:
        execute = self._connection.execute
        try:
            execute("SAVEPOINT batch")
            try:
                self._require_expected(batch)
                for write in batch.writes:
                    if isinstance(write, Put):
                        execute("INSERT OR REPLACE INTO kv (key, value) VALUES (?, ?)", (write.key, write.value))
                    else:
                        execute("DELETE FROM kv WHERE key = ?", (write.key,))
            except BaseException:
                if self._connection.in_transaction:
                    execute("ROLLBACK TO batch")
                raise
            finally:
                if self._connection.in_transaction:
                    execute("RELEASE batch")
        except PreconditionFailedError as error:
            return error
        except sqlite3.Error as error:
            return _translated(self.path, error)
        return None

    def _require_expected(self, batch: Batch) -> None:
        for expectation in batch.expect:
            row = self._connection.execute("SELECT value FROM kv WHERE key = ?", (expectation.key,)).fetchone()
            actual = row[0] if row else None
            if actual != expectation.value:
                raise PreconditionFailedError(expectation.key, actual)

    def _commit(self) -> TierError | None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):  # already rolled back, or the next BEGIN will say so
                self._connection.rollback()
            translated = _translated(self.path, error)
            # Full or busy: the commit mark was never written. Otherwise it may be on disk, though we roll back.
            if _code(error) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}:
                return translated
            return OutcomeUnknownError(f"{translated}, at commit", remedy=translated.remedy)
        return None

    def close(self) -> None:
        """Close the connection; the last one to close a file folds its WAL into it."""
        self._connection.close()


_SIZE_LIMIT: Final = f"PRAGMA journal_size_limit={64 << 20}"


def _create(path: Path) -> None:
    """Make a complete store under another name, then link it: two that do so at once both end with the first one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    draft.unlink(missing_ok=True)
    try:
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        finally:
            connection.close()
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        for name in (draft.name, f"{draft.name}-wal", f"{draft.name}-shm"):
            draft.with_name(name).unlink(missing_ok=True)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_ours(path: Path, connection: sqlite3.Connection) -> None:
    if path.stat().st_size == 0:
        raise MetadataError(
            f"{path}: the metadata file is empty",
            remedy=f"restore {path} from a backup; remove it only if nothing was ever copied",
        )
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != _APPLICATION_ID:
        raise MetadataError(f"{path}: an SQLite file, but not tierd's", remedy="correct metadata.sqlite.path")
    if version != SCHEMA_VERSION:
        raise MetadataError(
            f"{path}: written as schema version {version}, this tierd knows version {SCHEMA_VERSION}",
            remedy="use the version of tierd that wrote it, or a later one",
        )


def _require_sound(path: Path, connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _damaged(path, verdict)


def _damaged(path: Path, problem: str) -> MetadataError:
    return MetadataError(
        f"{path}: the metadata file is damaged ({problem})",
        remedy=f"stop tierd and restore {path} from a backup; sqlite3 {path} .recover saves what is readable",
    )


def _code(error: sqlite3.Error) -> int:
    """The primary result code; 0 for errors that are not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _translated(path: Path, error: sqlite3.Error | OSError) -> MetadataError:
    if isinstance(error, OSError):
        return BackendUnavailableError(f"{path}: {error.strerror or error}", remedy=_REMEDIES[sqlite3.SQLITE_CANTOPEN])
    if _code(error) in _DAMAGE:
        return _damaged(path, str(error))
    remedy = _REMEDIES.get(_code(error), "look at the disk and the system log; tierd tries again")
    return BackendUnavailableError(f"{path}: {error}", remedy=remedy)


def _connect(path: Path, options: str, timeout_s: float) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    # No isolation level: transactions begin and end where this module says so. The thread may change, the turns do not.
    return sqlite3.connect(uri, timeout=timeout_s, isolation_level=None, check_same_thread=False, uri=True)
