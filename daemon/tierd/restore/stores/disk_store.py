"""DiskStore: a store on disk for an event loop. Every blocking call runs in the one thread of the store."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.stores.store_files import StoreDirectory, StoreEngine, StoreFiles, as_store_failure

T = TypeVar("T")


class DiskStore:
    """Store over the files of an engine.

    A cancelled call runs to its end in the thread, so no batch is applied in part.

    Attributes:
        name: as the topology has it.
        timestamped: values begin with the record's timestamp.
    """

    persistent = True
    transactional = True  # the engine keeps records and offset as one unit

    def __init__(self, name: str, engine: StoreEngine, *, timestamped: bool) -> None:
        self.name = name
        self.timestamped = timestamped
        self._engine = engine
        self._thread: ThreadPoolExecutor | None = None
        self._directory: StoreDirectory | None = None
        self._files: StoreFiles | None = None

    async def open(self, directory: Path) -> None:
        """Open or create the store in ``directory``; finish a wipe that a crash has interrupted."""
        if self._thread is not None:
            raise StoreFailedError(self.name, "is open already", remedy="close it first")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"store-{self.name}")
        try:
            await self._call(lambda: self._open(directory))
        except BaseException:
            await self.close(clean=False)
            raise

    async def close(self, *, clean: bool) -> None:
        """Close the store; ``clean`` makes everything durable first. A second call does nothing."""
        if self._thread is None:
            return
        try:
            await self._call(lambda: self._close(clean=clean))
        finally:
            self._thread.shutdown(wait=False)
            self._thread = None

    async def wipe(self) -> None:
        """Remove all data, the stored offset and the store id; the store stays open and is empty."""
        await self._call(self._wipe)

    async def restore_batch(self, records: ChangelogRecords, last_offset: int) -> None:
        """Set or delete every key, in order, as one unit with ``last_offset``."""
        await self._call(lambda: self._opened.apply(records, last_offset))

    async def stored_offset(self) -> int | None:
        """Return the last applied offset; None for a store that keeps none, and after a wipe."""
        return await self._call(self._opened.stored_offset)

    async def store_id(self) -> str | None:
        """Return the id of the files; another one after a wipe."""
        return await self._call(self._opened.store_id)

    async def is_empty(self) -> bool:
        """Return True if the store holds no key."""
        return await self._call(self._opened.is_empty)

    async def flush(self) -> None:
        """Make every batch durable that was applied before this call."""
        await self._call(self._opened.flush)

    async def _call(self, call: Callable[[], T]) -> T:
        if self._thread is None:
            raise StoreFailedError(self.name, "is not open", remedy="open it first")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._translated, call)

    def _translated(self, call: Callable[[], T]) -> T:
        with as_store_failure(self.name):
            return call()

    @property
    def _opened(self) -> StoreFiles:
        if self._files is None:
            raise StoreFailedError(self.name, "is not open, or a wipe has failed", remedy="close it and open it again")
        return self._files

    def _open(self, directory: Path) -> None:
        self._directory = StoreDirectory(self.name, directory, self._engine)
        self._files = self._directory.open_files()

    def _close(self, *, clean: bool) -> None:
        try:
            if self._files is not None:
                files, self._files = self._files, None
                try:
                    if clean:
                        files.flush()
                finally:
                    files.close()
        finally:
            if self._directory is not None:
                directory, self._directory = self._directory, None
                directory.close()

    def _wipe(self) -> None:
        assert self._directory is not None, "the store is open"
        if self._files is not None:
            files, self._files = self._files, None
            files.close()
        self._directory.wipe()
        self._files = self._directory.open_files()
