"""RemoteIndexCache: fetched indexes on local disk, bounded (remote-tiering 16; Kafka: RemoteIndexCache).

Indexes lie here in plain form, those of encrypted segments too: offsets, positions, timestamps and producer ids, and
nothing of any record. So the directory is for its owner alone. Nothing is flushed; see ``remote.cache.checked_file``.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import (
    CorruptIndexError,
    RemoteIndexAbsentError,
    RemoteIntegrityError,
    RemoteStorageError,
    TierErrorCode,
)
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.remote import CacheStatistics, RemoteStorageManager, SizedLru
from tierd.tasks import retrieve, wait_all
from tierd.tiering.reading.index_files import SUFFIXES, IndexFiles, require_sound, stem_of

log = structlog.get_logger()

DELETE_DELAY_S = 10.0

_Contents = Mapping[IndexType, bytes]


@dataclass(slots=True)
class _Entry:
    """An entry that is on disk. Its files keep their names while a reader has them."""

    stem: str
    readers: int = 0
    unread: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.unread.set()

    def begin_reading(self) -> None:
        self.readers += 1
        self.unread.clear()

    def end_reading(self) -> None:
        self.readers -= 1
        if not self.readers:
            self.unread.set()


class RemoteIndexCache:
    """Offset, time and transaction indexes by segment. ``open`` it, ``close`` it; one event loop."""

    def __init__(self, files: IndexFiles, *, remote: RemoteStorageManager, capacity_bytes: int, clock: Clock) -> None:
        self._files = files
        self._remote = remote
        self._clock = clock
        self._order: SizedLru[UUID] = SizedLru(capacity_bytes)
        self._entries: dict[UUID, _Entry] = {}  # invariant: the same ids as _order
        self._loads: dict[UUID, asyncio.Task[_Contents]] = {}
        self._removals: dict[UUID, asyncio.Task[None]] = {}
        self._deleted: deque[tuple[float, list[Path]]] = deque()
        self._has_deleted = asyncio.Event()
        self._counted = CacheStatistics()
        self._cleaner: asyncio.Task[None] | None = None
        self._write_problem_told = False
        self._is_closed = False

    @classmethod
    async def open(
        cls, directory: Path, *, remote: RemoteStorageManager, capacity_bytes: int, clock: Clock
    ) -> Self | None:
        """Open the directory, clean it up and take over what is whole there.

        Args:
            directory: made if it is not there; one process at a time may have it.
            remote: the store of the indexes.
            capacity_bytes: on disk; of the three files of every entry.
            clock: the clock of the delay before files are deleted.

        Returns:
            None when another process has the directory, or it cannot be used: then indexes are fetched every time.
        """
        cache = cls(IndexFiles(directory), remote=remote, capacity_bytes=capacity_bytes, clock=clock)
        try:
            found = await asyncio.to_thread(cache._files.open)
        except BlockingIOError:
            log.debug("index_cache_in_use", directory=str(directory))
            return None
        except OSError as error:
            log.warning(
                "index_cache_unusable",
                directory=str(directory),
                problem=error.strerror or str(error),
                remedy="reading goes on without it; make room, or correct fetch.cache_dir",
            )
            return None
        for entry in found:
            cache._enter(entry.segment_id, entry.stem, entry.size_bytes)
        cache._cleaner = asyncio.create_task(cache._clean(), name="remote index cleaner")
        cache._evict()
        return cache

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, segment_id: UUID) -> bool:
        return segment_id in self._entries

    def statistics(self) -> CacheStatistics:
        """Return the counts, and the present content."""
        return replace(self._counted, entries=len(self._order), size_bytes=self._order.size_bytes)

    async def read(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return an index of the segment; a transaction index that is nowhere is empty. Nothing else is kept here.

        Cancelled, it leaves the load to go on for the next caller.

        Raises:
            RemoteStorageError: the cache was closed (Kafka: IllegalStateException).
            RemoteResourceNotFoundError: the segment's indexes are not in the store.
            RemoteIntegrityError: the bytes in the store are no such index.
            RemoteStorageError: the store did not answer.
        """
        self._require_open()
        if index_type not in SUFFIXES:
            return await self._remote.fetch_index(metadata, index_type)
        segment_id = metadata.segment.id
        if (entry := self._entries.get(segment_id)) is not None:
            content = await self._read_entry(segment_id, entry, index_type)
            if content is not None:
                self._counted.hits += 1
                self._counted.hit_bytes += len(content)
                return content
        self._require_open()
        return (await self._loaded(metadata))[index_type]

    def remove(self, segment_ids: Iterable[UUID]) -> None:
        """Remove entries of deleted segments; their files are deleted in the background. Unknown ids are ignored."""
        for segment_id in segment_ids:
            self._remove(segment_id)

    def resize(self, capacity_bytes: int) -> None:
        """Use another capacity from now on; entries beyond it are evicted."""
        self._order.capacity_bytes = capacity_bytes
        self._evict()

    async def close(self) -> None:
        """End what is under way; every later call is refused. The files stay for the next start. Idempotent.

        A cancellation is raised when all has ended.
        """
        self._is_closed = True
        cleaner, self._cleaner = self._cleaner, None
        ending = [*self._loads.values(), *([cleaner] if cleaner else [])]
        for task in ending:
            task.cancel()
        try:
            await wait_all([*ending, *self._removals.values()])
        finally:
            await asyncio.to_thread(self._files.close)

    # ------------------------------------------------------------ what is there

    async def _read_entry(self, segment_id: UUID, entry: _Entry, index_type: IndexType) -> bytes | None:
        entry.begin_reading()
        try:
            content = await asyncio.to_thread(self._files.read, entry.stem, index_type)
        finally:
            entry.end_reading()
        if self._entries.get(segment_id) is entry:
            if content is None:
                self._counted.damaged += 1
                self._remove(segment_id)
            else:
                self._order.use(segment_id)
        return content

    def _enter(self, segment_id: UUID, stem: str, size_bytes: int) -> None:
        self._entries[segment_id] = _Entry(stem)
        self._order.add(segment_id, size_bytes)

    # ------------------------------------------------------------ what is not

    async def _loaded(self, metadata: RemoteLogSegmentMetadata) -> _Contents:
        segment_id = metadata.segment.id
        load = self._loads.get(segment_id)
        if load is None:
            load = asyncio.create_task(self._load(metadata), name=f"load indexes of {metadata.segment}")
            self._loads[segment_id] = load
            load.add_done_callback(lambda ended: self._load_ended(segment_id, ended))
        try:
            return await asyncio.shield(load)
        except asyncio.CancelledError:
            if load.cancelled() and self._is_closed:
                raise _closed() from None
            raise

    def _load_ended(self, segment_id: UUID, load: "asyncio.Task[_Contents]") -> None:
        del self._loads[segment_id]
        retrieve(load)

    async def _load(self, metadata: RemoteLogSegmentMetadata) -> _Contents:
        stem = stem_of(metadata)
        if (removal := self._removals.get(metadata.segment.id)) is not None:
            await asyncio.wait({removal})  # or its files would be taken for those of the new entry
        contents = await asyncio.to_thread(self._found_on_disk, metadata, stem)
        missing = [index_type for index_type in SUFFIXES if index_type not in contents]
        self._counted.misses += 1
        fetched = await asyncio.gather(*(self._fetch(metadata, t) for t in missing), return_exceptions=True)
        for index_type, content in zip(missing, fetched, strict=True):
            if isinstance(content, BaseException):
                raise content
            contents[index_type] = content
            self._counted.miss_bytes += len(content)
        await self._keep(metadata.segment.id, stem, contents, missing)
        return contents

    def _found_on_disk(self, metadata: RemoteLogSegmentMetadata, stem: str) -> dict[IndexType, bytes]:
        found: dict[IndexType, bytes] = {}
        for index_type in SUFFIXES:
            content = self._files.read(stem, index_type)
            if content is not None:
                try:
                    require_sound(metadata, index_type, content)
                except CorruptIndexError:
                    continue
                found[index_type] = content
        return found

    async def _fetch(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        if index_type is IndexType.TRANSACTION and metadata.txn_index_empty:
            return b""
        try:
            content = await self._remote.fetch_index(metadata, index_type)
        except RemoteIndexAbsentError:
            if index_type is IndexType.TRANSACTION:
                return b""  # "not known to be empty" is all that the metadata said
            raise
        try:
            await asyncio.to_thread(require_sound, metadata, index_type, content)
        except CorruptIndexError as error:
            raise RemoteIntegrityError(str(error), remedy=error.remedy) from error
        return content

    async def _keep(self, segment_id: UUID, stem: str, contents: _Contents, fetched: Iterable[IndexType]) -> None:
        new = {index_type: contents[index_type] for index_type in fetched}
        writing = asyncio.ensure_future(asyncio.to_thread(self._files.write, stem, new))
        try:
            size = await asyncio.shield(writing)
        except asyncio.CancelledError:
            await wait_all([writing])  # the thread outlives the cancellation; the next start cleans up after it
            raise
        except OSError as error:
            self._write_failed(error)
            return
        self._write_problem_told = False
        self._enter(segment_id, stem, size)
        self._evict()

    def _write_failed(self, error: OSError) -> None:
        self._counted.write_failures += 1
        if not self._write_problem_told:
            log.warning(
                "index_cache_not_writable",
                directory=str(self._files.directory),
                problem=error.strerror or str(error),
                remedy="reading goes on without keeping indexes; make room, or correct fetch.cache_dir",
            )
        self._write_problem_told = True

    # ------------------------------------------------------------ what goes

    def _evict(self) -> None:
        for segment_id in self._order.evict():
            self._counted.evictions += 1
            self._rename(segment_id, self._entries.pop(segment_id))

    def _remove(self, segment_id: UUID) -> None:
        entry = self._entries.pop(segment_id, None)
        if entry is not None:
            self._order.discard(segment_id)
            self._rename(segment_id, entry)

    def _rename(self, segment_id: UUID, entry: _Entry) -> None:
        removal = asyncio.create_task(self._rename_unread(entry), name=f"remove indexes {entry.stem}")
        self._removals[segment_id] = removal
        removal.add_done_callback(lambda _: self._removals.pop(segment_id))

    async def _rename_unread(self, entry: _Entry) -> None:
        await entry.unread.wait()  # its readers are threads that read one file each
        try:
            marked = await asyncio.to_thread(self._files.mark_deleted, entry.stem)
        except OSError as error:
            log.warning("index_cache_removal_failed", entry=entry.stem, problem=str(error))
            return
        self._deleted.append((self._clock.monotonic_s() + DELETE_DELAY_S, marked))
        self._has_deleted.set()

    async def _clean(self) -> None:
        """Delete renamed files a while later, as a reader that opened them by another way may still need them."""
        while True:
            await self._has_deleted.wait()
            self._has_deleted.clear()
            while self._deleted:
                due_s, paths = self._deleted[0]
                await self._clock.sleep(max(0.0, due_s - self._clock.monotonic_s()))
                for error in await asyncio.to_thread(self._files.remove, paths):
                    log.warning("index_cache_removal_failed", problem=str(error))
                self._deleted.popleft()

    def _require_open(self) -> None:
        if self._is_closed:
            raise _closed()


def _closed() -> RemoteStorageError:
    return RemoteStorageError(
        "the index cache is closed", remedy="nothing to do: the process is ending", code=TierErrorCode.READER_CLOSED
    )
