"""Metadata file of SQLite as a whole: it is made, closed to other users, and checked when it is opened.

A file is made under another name and linked into place when it is complete, so that an empty file and a file of another
kind are never taken for a new store.
"""

import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import Final

from tierd.errors import MetadataError
from tierd.files import make_private, open_regular, sync_directory
from tierd.metadata.kv.sqlite_errors import damaged, restore_remedy

SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x74696572  # "tier"
_TABLE: Final = "CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID"


def create(path: Path) -> None:
    """Make a complete store under another name, then link it: two that do so at once both end with the first one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    draft.unlink(missing_ok=True)
    try:
        os.close(open_regular(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # SQLite would make it by the umask
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        finally:
            connection.close()
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        for name in (draft.name, f"{draft.name}-wal", f"{draft.name}-shm"):
            draft.with_name(name).unlink(missing_ok=True)
    sync_directory(path.parent)


def close_to_others(path: Path) -> None:
    """Take the rights of other users away: the file has keys of open erasures. SQLite gives its files the same mode."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with contextlib.suppress(FileNotFoundError):
            make_private(path.with_name(name))


def require_no_stray_log(path: Path) -> None:
    """Raise if a log is there without its file: SQLite would play that log into the new file."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and not path.exists():  # not made by another process a moment ago
        raise MetadataError(f"{path}: missing, but {log.name} is there", remedy=restore_remedy(path))


def require_ours(path: Path, connection: sqlite3.Connection) -> None:
    """Raise unless the file is a metadata file of this schema version."""
    if path.stat().st_size == 0:
        raise MetadataError(
            f"{path}: the metadata file is empty",
            remedy=f"{restore_remedy(path)}; remove it only if nothing was ever copied",
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


def require_sound(path: Path, connection: sqlite3.Connection) -> None:
    """Raise if SQLite finds the file damaged."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise damaged(path, verdict)
