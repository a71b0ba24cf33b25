"""ChunkCache: ranges of stored objects on local disk, within a bound; the longest unused ones are evicted.

The bytes are those of the store: what is encrypted there is encrypted here. Several processes may share a directory.
Each process lists the whole directory again after every eighth of the capacity that it has written. So all processes
together stay within the capacity, and an eighth of it for each of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, Self, TypeVar

import structlog

from tierd.clock import Clock
from tierd.errors import RemoteStorageError, TierErrorCode
from tierd.model import ByteRange
from tierd.open_file import OpenFile
from tierd.remote.cache.checked_chunks import CheckedChunks
from tierd.remote.cache.checked_file import DamagedFileError, file_size_of
from tierd.remote.cache.chunk_files import (
    ChunkFiles,
    chunk_identity,
    chunk_name,
    is_chunk_of,
    object_part,
    object_part_of,
)
from tierd.remote.cache.sized_lru import SizedLru
from tierd.tasks import retrieve, wait_all

log = structlog.get_logger()

T = TypeVar("T")

_READ_THREADS = 4
_WRITE_THREADS = 2  # apart from those of the reads, which wait for no write
_UNWRITTEN_BYTES = 64 << 20  # downloaded and not on disk yet; beyond it chunks pass by, for a reader waits for no disk
_DIRECT_BYTES = _UNWRITTEN_BYTES // 2  # beyond it the disk is slower than the store, and the page cache takes the rest
_WRITE_PAUSE_S = 60.0  # after a failed write; the disk is full or not ours
_LISTED_EVERY = 8  # parts of the capacity


class RangeSource(Protocol):
    """Source of the cached ranges: the reading half of an ``ObjectStore``."""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""


@dataclass(slots=True, kw_only=True)
class CacheStatistics:
    """Counts of a cache since it was opened, and its present size.

    Attributes:
        hits: lookups answered from disk, or from a download that another reader had begun.
        misses: lookups that went to the store.
        hit_bytes: bytes that the hits returned.
        miss_bytes: bytes that the misses downloaded.
        evictions: entries dropped for want of room.
        damaged: number of files with wrong content, which were dropped and fetched anew.
        write_failures: entries that the disk did not take.
        entries: now.
        size_bytes: now, with checksums.
    """

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    evictions: int = 0
    damaged: int = 0
    write_failures: int = 0
    entries: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class _Download:
    """One lookup under way. It belongs to the cache: once begun, it goes on without its callers (KIP-1018)."""

    name: str
    key: str
    byte_range: ByteRange
    waiters: int = 0
    has_begun: bool = False
    task: "asyncio.Task[bytes]" = field(init=False)


@dataclass(slots=True)
class _Unwritten:
    """Downloaded chunks on their way to the disk."""

    contents: dict[str, bytes] = field(default_factory=dict)
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)
    size_bytes: int = 0


class ChunkCache:
    """``get`` of an object store with a directory in front. ``open`` it, ``close`` it."""

    def __init__(
        self, store: RangeSource, files: ChunkFiles, *, capacity_bytes: int, concurrency: int, clock: Clock
    ) -> None:
        self._store = store
        self._files = files
        self._clock = clock
        self._index: SizedLru[str] = SizedLru(capacity_bytes)
        self._downloads: dict[str, _Download] = {}
        self._unwritten = _Unwritten()
        self._checked = CheckedChunks(clock=clock)
        self._places = asyncio.Semaphore(concurrency)
        self._threads = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="chunk-cache")
        self._writers = ThreadPoolExecutor(_WRITE_THREADS, thread_name_prefix="chunk-cache-writes")
        self._counted = CacheStatistics()
        self._since_listing_bytes = 0
        self._written_while_listing: dict[str, int] | None = None
        self._no_writes_before_s: float | None = None
        self._is_closed = False

    @classmethod
    async def open(
        cls, store: RangeSource, *, directory: Path, capacity_bytes: int, concurrency: int = 10, clock: Clock
    ) -> Self:
        """Open the directory, with the chunks of an earlier run. A directory that cannot be used is logged once.

        Args:
            store: where a miss goes; it belongs to the caller, who closes it after the cache.
            directory: made if it is not there, for its owner alone.
            capacity_bytes: on disk.
            concurrency: downloads at once.
            clock: for the pause after a failed write.
        """
        cache = cls(store, ChunkFiles(directory), capacity_bytes=capacity_bytes, concurrency=concurrency, clock=clock)
        try:
            cache._index = SizedLru(capacity_bytes, await cache._in_thread(cache._files.prepare))
        except OSError as error:
            cache._write_failed(error)
        await cache._evict()
        return cache

    def statistics(self) -> CacheStatistics:
        """Return counts and sizes."""
        return replace(self._counted, entries=len(self._index), size_bytes=self._index.size_bytes)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the bytes of ``byte_range``, from disk or from the store; whole objects always from the store.

        A cancellation leaves a download that has begun to go on: its bytes are kept for the next reader.

        Raises:
            RemoteStorageError: the cache was closed.
            RemoteStorageError: as the store raises it.
        """
        if self._is_closed:
            raise _closed()
        if byte_range is None:
            return await self._store.get(key)
        name = chunk_name(key, byte_range)
        if (unwritten := self._unwritten.contents.get(name)) is not None:
            return self._hit(unwritten)
        download = self._downloads.get(name)
        if download is None:
            download = self._begin(name, key, byte_range)
            return await self._wait(download)
        return self._hit(await self._wait(download))

    async def open_checked(self, key: str, byte_range: ByteRange, *, crc32c: int, used_bytes: int) -> OpenFile | None:
        """Return the open file of a chunk, whose content was compared with ``crc32c`` at most ``CHECKED_S`` ago.

        The bytes of ``byte_range`` are at the begin of the file. The file stays as it is when the chunk is evicted.

        Args:
            key: of the object.
            byte_range: of the chunk.
            crc32c: CRC-32C of the bytes as they are stored.
            used_bytes: counted as those of a hit.

        Returns:
            None where ``get`` has to return the bytes: they are not on disk, or too many files are open.
        """
        name = chunk_name(key, byte_range)
        found = self._checked.find(name)
        if found is None:
            if self._is_closed or name not in self._index:
                return None
            found = await self._checked.check(name, partial(self._check, name, byte_range.size, crc32c))
        if found is not None:
            self._index.use(name)
            self._counted.hits += 1
            self._counted.hit_bytes += used_bytes
        return found

    def check_ahead(self, key: str, byte_range: ByteRange, *, crc32c: int) -> None:
        """Begin the check of a chunk that ``open_checked`` will probably be asked for; arguments as it has them."""
        name = chunk_name(key, byte_range)
        if not self._is_closed and name in self._index and self._checked.find(name) is None:
            self._checked.begin(name, partial(self._check, name, byte_range.size, crc32c))

    async def remove(self, key: str) -> None:
        """Drop the chunks of an object that is gone. Chunks that other processes wrote since are evicted later."""
        # Of some chunks only the file is there, which was checked: another process has evicted them.
        await self._remove([name for name in {*self._index, *self._checked.names} if is_chunk_of(name, key)])

    async def drop(self, key: str, byte_range: ByteRange) -> None:
        """Drop the cached bytes of a range, because they are wrong: the next reader asks the store."""
        name = chunk_name(key, byte_range)
        while name in self._unwritten.contents:
            await asyncio.wait(self._unwritten.tasks)
        await self._remove([name])

    async def purge(self, keys: Iterable[str]) -> int:
        """Drop every chunk of these objects, of any process; return how many are still on their way or open.

        A chunk is on its way to the disk, or its file is open: it is being checked, or sent to a client.

        Raises:
            OSError: the directory cannot be listed.
        """
        parts = {object_part(key) for key in keys}
        under_way = {name for name in (*self._unwritten.contents, *self._downloads) if object_part_of(name) in parts}
        listed = await self._in_thread(self._files.list)
        names = {*self._checked.names, *(name for name, _ in listed)}
        await self._remove([name for name in names if object_part_of(name) in parts])
        left = await self._in_thread(self._files.list)  # some arrived meanwhile
        names = {*self._checked.names, *(name for name, _ in left)}
        return len(under_way | {name for name in names if object_part_of(name) in parts})

    async def close(self) -> None:
        """End the downloads, finish the writes; every later call is refused. Closing twice is harmless.

        A cancellation is raised when all has ended.
        """
        self._is_closed = True
        downloads = [download.task for download in self._downloads.values()]
        for task in downloads:
            task.cancel()
        try:
            await wait_all([*downloads, *self._unwritten.tasks])
        finally:
            try:
                await self._checked.close()
            finally:
                self._threads.shutdown(wait=False)
                self._writers.shutdown(wait=False)

    # ------------------------------------------------------------ one lookup, shared by its callers

    def _begin(self, name: str, key: str, byte_range: ByteRange) -> _Download:
        self._downloads[name] = download = _Download(name, key, byte_range)
        download.task = asyncio.create_task(self._load(download), name=f"chunk {key} {byte_range.start}")
        download.task.add_done_callback(lambda _: self._ended(download))
        return download

    def _ended(self, download: _Download) -> None:
        self._forget(download)
        retrieve(download.task)

    def _forget(self, download: _Download) -> None:
        if self._downloads.get(download.name) is download:
            del self._downloads[download.name]

    async def _wait(self, download: _Download) -> bytes:
        download.waiters += 1
        try:
            return await asyncio.shield(download.task)
        except asyncio.CancelledError:
            if download.task.cancelled() and self._is_closed:
                raise _closed() from None
            if download.waiters == 1 and not download.has_begun:  # the store was not asked yet, and no caller waits
                self._forget(download)
                download.task.cancel()
            raise
        finally:
            download.waiters -= 1

    async def _load(self, download: _Download) -> bytes:
        key, byte_range = download.key, download.byte_range
        identity = chunk_identity(key, byte_range)
        content = await self._read(download.name, identity)
        if content is not None:
            return self._hit(content)
        async with self._places:
            download.has_begun = True
            content = await self._store.get(key, byte_range)
        self._counted.misses += 1
        self._counted.miss_bytes += len(content)
        if len(content) == byte_range.size:  # a shorter one is the caller's to judge, and nothing to keep
            self._keep(download.name, content, identity)
        return content

    def _hit(self, content: bytes) -> bytes:
        self._counted.hits += 1
        self._counted.hit_bytes += len(content)
        return content

    # ------------------------------------------------------------ the disk

    async def _read(self, name: str, identity: str) -> bytes | None:
        """Return the chunk from disk, of any process; None when it is not there or damaged."""
        try:
            content = await self._in_thread(lambda: self._files.read(name, identity=identity))
        except FileNotFoundError:
            self._index.discard(name)
            return None
        except DamagedFileError as error:
            await self._drop_damaged(name, error)
            return None
        except OSError:
            return None
        self._index.use(name)
        return content

    async def _check(self, name: str, size_bytes: int, crc32c: int) -> OpenFile | None:
        """Return the file of a chunk that has these bytes; None when it is not there, damaged, or not readable."""
        try:
            return await self._in_thread(partial(self._files.open, name, size_bytes=size_bytes, crc32c=crc32c))
        except FileNotFoundError:
            self._index.discard(name)
        except DamagedFileError as error:
            await self._drop_damaged(name, error)
        except OSError:
            pass
        return None

    async def _drop_damaged(self, name: str, error: DamagedFileError) -> None:
        log.warning("chunk_damaged", problem=str(error), remedy="nothing to do: it is fetched anew")
        self._counted.damaged += 1
        await self._remove([name])

    def _keep(self, name: str, content: bytes, identity: str) -> None:
        size = file_size_of(len(content))
        if (
            self._is_closed
            or size > self._index.capacity_bytes
            or self._unwritten.size_bytes + size > _UNWRITTEN_BYTES
            or (self._no_writes_before_s is not None and self._clock.monotonic_s() < self._no_writes_before_s)
        ):
            return
        self._unwritten.contents[name] = content
        self._unwritten.size_bytes += size
        is_direct = self._unwritten.size_bytes <= _DIRECT_BYTES
        task = asyncio.create_task(self._write(name, content, identity, is_direct=is_direct), name=f"keep {name}")
        self._unwritten.tasks.add(task)
        task.add_done_callback(self._unwritten.tasks.discard)

    async def _write(self, name: str, content: bytes, identity: str, *, is_direct: bool) -> None:
        size = file_size_of(len(content))
        write = partial(self._files.write, name, content, identity=identity, is_direct=is_direct)
        try:
            await asyncio.get_running_loop().run_in_executor(self._writers, write)
        except OSError as error:
            self._write_failed(error)
            return
        finally:
            del self._unwritten.contents[name]
            self._unwritten.size_bytes -= size
        self._no_writes_before_s = None
        self._index.add(name, size)
        if self._written_while_listing is not None:
            self._written_while_listing[name] = size
        self._since_listing_bytes += size
        if self._since_listing_bytes > self._index.capacity_bytes // _LISTED_EVERY:
            await self._list_again()
        await self._evict()

    async def _list_again(self) -> None:
        """List the directory again, to know what other processes wrote, removed and used since."""
        if self._written_while_listing is not None:
            return
        self._since_listing_bytes, self._written_while_listing = 0, {}
        try:
            listed = await self._in_thread(self._files.list)
            self._index = SizedLru(self._index.capacity_bytes, [*listed, *self._written_while_listing.items()])
        except OSError as error:
            self._write_failed(error)
        finally:
            self._written_while_listing = None

    async def _evict(self) -> None:
        evicted = self._index.evict()
        self._counted.evictions += len(evicted)
        await self._remove(evicted)

    async def _remove(self, names: list[str]) -> None:
        self._checked.discard(names)
        for name in names:
            self._index.discard(name)
        if names:
            await self._in_thread(lambda: self._files.remove(names))

    def _write_failed(self, error: OSError) -> None:
        self._counted.write_failures += 1
        if self._no_writes_before_s is None:
            log.warning(
                "chunk_cache_not_writable",
                directory=str(self._files.directory),
                problem=error.strerror or str(error),
                remedy="reading goes on without keeping chunks; make room, or correct fetch.cache_dir",
            )
        self._no_writes_before_s = self._clock.monotonic_s() + _WRITE_PAUSE_S

    async def _in_thread(self, call: Callable[[], T]) -> T:
        running: Awaitable[T] = asyncio.get_running_loop().run_in_executor(self._threads, call)
        return await running


def _closed() -> RemoteStorageError:
    return RemoteStorageError(
        "the chunk cache is closed", remedy="nothing to do: the process is ending", code=TierErrorCode.READER_CLOSED
    )
