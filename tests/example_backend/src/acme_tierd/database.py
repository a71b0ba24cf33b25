"""Database: an SQLite file that is used by one thread, from one event loop."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Database:
    """A file that is opened by the first call; calls run one after the other, in the order of asking."""

    def __init__(self, path: Path, *, timeout_s: float = 5.0, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self.is_closed = False
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="acme")

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do ``work`` in the thread; a caller that is cancelled drops its answer and nothing else."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    async def close(self) -> None:
        """Let the calls that were asked for end, and close the file."""
        if self.is_closed:
            return
        self.is_closed = True
        closing = self._thread.submit(self._close)
        self._thread.shutdown(wait=False)
        await asyncio.wrap_future(closing)

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._connect()
        return work(self._connection)

    def _connect(self) -> sqlite3.Connection:
        if self.read_only:
            return sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=self._timeout_s, isolation_level=None)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=self._timeout_s, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS objects "
            "(key TEXT PRIMARY KEY, content BLOB NOT NULL, crc32c INTEGER NOT NULL, modified_ms INTEGER NOT NULL)"
        )
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done inside, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
