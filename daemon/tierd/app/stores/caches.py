"""The caches on disk of chunks that were read from the tier."""

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

from tierd.clock import Clock
from tierd.config import FetchSettings
from tierd.remote import ChunkCache, ObjectStore
from tierd.telemetry import CacheUse, ReadingUse
from tierd.tiering import FetchStatistics

CHUNKS_DIRECTORY = "chunks"


@contextlib.asynccontextmanager
async def chunk_cache(
    settings: FetchSettings, store: ObjectStore, *, cache_dir: Path, clock: Clock, is_daemon: bool
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
