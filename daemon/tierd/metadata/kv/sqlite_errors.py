"""Translation of errors of SQLite and of the file system below it."""

import sqlite3
from pathlib import Path
from typing import Final

from tierd.errors import BackendUnavailableError, MetadataError
from tierd.metadata.kv.refusals import WritesRefusedError

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_NO_WRITES: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY})
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "make room on the disk; tierd goes on by itself",
    sqlite3.SQLITE_BUSY: "end the other program that holds the file; tierd goes on by itself",
    sqlite3.SQLITE_LOCKED: "end the other program that holds the file; tierd goes on by itself",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for tierd's user",
    sqlite3.SQLITE_CANTOPEN: "check that the directory exists and that tierd's user may use it",
}


def code_of(error: sqlite3.Error) -> int:
    """Return the primary result code; 0 for errors that are not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def damaged(path: Path, problem: str) -> MetadataError:
    """Return the error for a file whose content cannot be trusted."""
    remedy = f"{restore_remedy(path)}; sqlite3 {path} .recover saves what is readable"
    return MetadataError(f"{path}: the metadata file is damaged ({problem})", remedy=remedy)


def restore_remedy(path: Path) -> str:
    """Return the steps that bring a backup back: a log left beside it would be played into it."""
    return f"stop tierd, move {path.name}-wal and {path.name}-shm away, and restore {path} from a backup"


def translated(path: Path, error: sqlite3.Error | OSError) -> MetadataError:
    """Return our error for one of SQLite or of the file system."""
    if isinstance(error, OSError):
        return BackendUnavailableError(f"{path}: {error.strerror or error}", remedy=_REMEDIES[sqlite3.SQLITE_CANTOPEN])
    if code_of(error) in _DAMAGE or "not decode to UTF-8" in str(error):  # the latter is Python's own, without a code
        return damaged(path, str(error))
    remedy = _REMEDIES.get(code_of(error), "look at the disk and the system log; tierd tries again")
    kind = WritesRefusedError if code_of(error) in _NO_WRITES else BackendUnavailableError
    return kind(f"{path}: {error}", remedy=remedy)
