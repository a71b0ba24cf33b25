"""Reads of the tier on this host, and their caches on disk, which are cleared of what an erasure has removed."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from tierd.clock import Clock, SystemClock
from tierd.errors import StateDirError
from tierd.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, uuid_to_text
from tierd.remote import (
    ChunkCache,
    ObjectKeyFactory,
    ObjectStore,
    SegmentStorage,
    open_object_store,
    open_transform,
    purge_chunks,
    segment_storages,
)
from tierd.telemetry import CacheUse, ReadingUse
from tierd.tiering import FetchService, FetchStatistics, SilentRecorder, open_fetch_service

# Commands that read without a daemon have no engine, and some not the schema of the whole file.
if TYPE_CHECKING:
    from tierd.app.engine.compose import Engine
    from tierd.app.engine.tiered_log_reader import HostLogs
    from tierd.config import FetchSettings, TierdConfig, TieredLogSettings
    from tierd.pipeline import LeftSegment
    from tierd.telemetry import Metrics

CHUNKS_DIRECTORY = "chunks"


@contextlib.asynccontextmanager
async def chunk_cache(
    settings: "FetchSettings", store: ObjectStore, *, cache_dir: Path, clock: Clock, is_daemon: bool
) -> AsyncIterator[ChunkCache | None]:
    """Open the cache of stored chunks; close it afterwards.

    Args:
        settings: the capacity and concurrency of the cache.
        store: the objects that are cached.
        cache_dir: the directory of all caches.
        clock: for the pause after a failed write.
        is_daemon: the caller is the daemon, which owns the directory and makes a missing one. A command of a user who
            does not own the directory gets no cache, and leaves no files in it that the daemon could not read.
    """
    directory = cache_dir / CHUNKS_DIRECTORY
    if not settings.cache_bytes or not (is_daemon or _is_ours(directory)):
        yield None
        return
    cache = await ChunkCache.open(
        store,
        directory=directory,
        capacity_bytes=settings.cache_bytes,
        concurrency=settings.concurrency,
        clock=clock,
    )
    try:
        yield cache
    finally:
        await cache.close()


@contextlib.asynccontextmanager
async def fetching(engine: "Engine") -> AsyncIterator[FetchService]:
    """Open the reads of the daemon, which owns both caches; close them before the store that they read from."""
    async with fetch_service(
        engine.deployment.config,
        engine.store,
        engine.new_storage,
        recorder=engine.metrics,
        clock=engine.clock,
        is_daemon=True,
    ) as fetches:
        engine.metrics.sources.reading = lambda: reading_use(fetches.statistics())
        engine.storage.on_deleted(lambda metadata, log_key: _forget(fetches, metadata, log_key))
        yield fetches


@contextlib.asynccontextmanager
async def fetch_service(
    config: "TierdConfig | TieredLogSettings",
    store: ObjectStore,
    new_storage: "partial[SegmentStorage]",
    *,
    recorder: "Metrics | SilentRecorder",
    clock: Clock,
    is_daemon: bool,
) -> AsyncIterator[FetchService]:
    """Open the reads through the caches of this host; close them afterwards.

    Args:
        config: the settings of reads, and the directory of the caches.
        store: the objects.
        new_storage: maker of segment storages over ``store``.
        recorder: receives the events of remote reads.
        clock: for quotas and delays.
        is_daemon: the caller is the daemon. The index cache belongs to the daemon; for chunks see ``chunk_cache``.
    """
    async with (
        chunk_cache(config.fetch, store, cache_dir=config.cache_dir, clock=clock, is_daemon=is_daemon) as chunks,
        open_fetch_service(
            storage := new_storage(cache=chunks),
            settings=config.fetch,
            piece_bytes=config.remote.chunk_size_bytes,
            index_directory=config.cache_dir if is_daemon else None,
            chunks=chunks,
            cached_logs=None if chunks is None else storage,
            recorder=recorder,
            clock=clock,
        ) as fetches,
    ):
        yield fetches


def reading_use(statistics: FetchStatistics) -> ReadingUse:
    """Return the statistics of the reads from the tier in the form of the metrics."""
    gate = statistics.gate
    caches = {"chunks": statistics.chunks, "indexes": statistics.indexes}
    return ReadingUse(
        running=gate.running,
        pending=gate.pending,
        rejected=gate.rejected,
        bytes_per_second=gate.bytes_per_second,
        caches={name: CacheUse(**asdict(cache)) for name, cache in caches.items() if cache is not None},
    )


class HostCaches:
    """Caches of chunks and indexes on disk; open caches evict by themselves, of others the files are deleted."""

    def __init__(self, cache_dir: Path, keys: ObjectKeyFactory, fetches: FetchService | None) -> None:
        """Evict nothing yet; ``keys`` names new segments, and older segments are named by their custom metadata."""
        self._chunks = cache_dir / CHUNKS_DIRECTORY
        self._indexes = cache_dir  # as ``fetch_service`` gives it to the service
        self._keys = keys
        self._fetches = fetches

    @property
    def host(self) -> str:
        """Return the name of this host."""
        return socket.gethostname()

    async def evict(self, partition: TopicIdPartition, segments: "Sequence[LeftSegment]") -> int:
        """Evict everything of these segments; return how many files are left because they are in use.

        Raises:
            StateDirError: a directory of the caches cannot be read or changed.
        """
        keys = [
            self._keys.for_custom_metadata(each.custom_metadata, partition.topic).object(
                RemoteLogSegmentId(partition, each.id), each.start_offset, ".log"
            )
            for each in segments
        ]
        ids = {each.id for each in segments}
        try:
            return await self._evict_chunks(keys) + await self._evict_indexes(ids)
        except OSError as error:
            raise StateDirError(
                f"the caches cannot be read: {error}", remedy=f"let this user read and write {self._chunks.parent}"
            ) from error

    async def _evict_chunks(self, keys: Collection[str]) -> int:
        cache = self._fetches.chunk_cache if self._fetches is not None else None
        with contextlib.suppress(FileNotFoundError):  # no cache was ever kept
            return await cache.purge(keys) if cache else await asyncio.to_thread(purge_chunks, self._chunks, keys)
        return 0

    async def _evict_indexes(self, ids: Collection[UUID]) -> int:
        cache = self._fetches.index_cache if self._fetches is not None else None
        if cache is not None:
            cache.remove(ids)  # the cache deletes the files a little later
        return await asyncio.to_thread(_remove_indexes, self._indexes, ids, only_count=cache is not None)


def _is_ours(directory: Path) -> bool:
    """Return whether this user owns and may write ``directory``, or the nearest existing directory above it."""
    for path in (directory, *directory.parents):
        try:
            return path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return False


async def _forget(fetches: FetchService, metadata: RemoteLogSegmentMetadata, log_key: str) -> None:
    """Remove a deleted segment from both caches."""
    if fetches.index_cache is not None:
        fetches.index_cache.remove([metadata.segment.id])
    if fetches.chunk_cache is not None:
        await fetches.chunk_cache.remove(log_key)


def _remove_indexes(directory: Path, ids: Collection[UUID], *, only_count: bool) -> int:
    """Remove the index files of these segments, or only count them; return the number of files that are left."""
    texts = {uuid_to_text(each) for each in ids}
    try:
        files = [path for path in directory.iterdir() if _segment_of(path.name) in texts]
    except FileNotFoundError:
        return 0
    if only_count:
        return len(files)
    for path in files:
        path.unlink(missing_ok=True)
    return 0


def _segment_of(name: str) -> str:
    """Return the segment id in a name like ``<start offset>_<segment id>.index``."""
    return name.partition("_")[2].partition(".")[0]


@contextlib.asynccontextmanager
async def tier_reads(host: "HostLogs") -> AsyncIterator[FetchService]:
    """Open the object store, keys and chunk cache for a command that knows the log already; close them afterwards.

    Raises:
        ConfigError: cluster or node are not known.
        TierError: the store cannot be opened, or a key cannot be used.
    """
    config, identity, clock = host.config, await host.identity(), SystemClock()
    async with contextlib.AsyncExitStack() as opened:
        store = open_object_store(config.remote, clock=clock)
        opened.push_async_callback(store.close)
        transform = opened.enter_context(contextlib.closing(open_transform(config.remote)))
        new_storage = segment_storages(
            config.remote, store, transform, cluster_id=identity.cluster_id, broker_id=identity.node_id
        )
        reads = fetch_service(config, store, new_storage, recorder=SilentRecorder(), clock=clock, is_daemon=False)
        yield await opened.enter_async_context(reads)
