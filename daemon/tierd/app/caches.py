"""The caches on disk, as the configuration asks for them."""

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

from tierd.clock import Clock
from tierd.config import TierdConfig
from tierd.remote import ChunkCache, ObjectStore
from tierd.telemetry import CacheUse, ReadingUse
from tierd.tiering import FetchStatistics

CHUNKS_DIRECTORY = "chunks"


@contextlib.asynccontextmanager
async def chunk_cache(
    config: TierdConfig, store: ObjectStore, *, clock: Clock, is_daemon: bool
) -> AsyncIterator[ChunkCache | None]:
    """Open the cache of stored chunks; close it afterwards.

    Args:
        config: says where, and how large.
        store: what is cached.
        clock: for the pause after a failed write.
        is_daemon: the directory is its own, and made if it is not there. A command of another user than the one that
            owns it reads without a cache, and leaves no files there that the daemon could not read.
    """
    directory = config.cache_dir / CHUNKS_DIRECTORY
    if not config.fetch.cache_bytes or not (is_daemon or _is_ours(directory)):
        yield None
        return
    cache = await ChunkCache.open(
        store,
        directory=directory,
        capacity_bytes=config.fetch.cache_bytes,
        concurrency=config.fetch.concurrency,
        clock=clock,
    )
    try:
        yield cache
    finally:
        await cache.close()


def reading_use(statistics: FetchStatistics) -> ReadingUse:
    """What the metrics say of the reads from the tier."""
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
    """Whether the directory, or the nearest one above it that there is, belongs to this user, who may write there."""
    for path in (directory, *directory.parents):
        try:
            return path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return False
