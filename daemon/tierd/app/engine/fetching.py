"""The reads of a running daemon: the caches that the daemon owns, and the service over them."""

import contextlib
from collections.abc import AsyncIterator

from tierd.app.engine.compose import Engine
from tierd.app.stores.caches import chunk_cache, reading_use
from tierd.model import RemoteLogSegmentMetadata
from tierd.remote import ChunkCache
from tierd.tiering import FetchService, open_fetch_service


@contextlib.asynccontextmanager
async def fetching(engine: Engine) -> AsyncIterator[FetchService]:
    """Open both caches and the service; close them before the store that they read from."""
    config = engine.settings.config
    async with (
        chunk_cache(
            config.fetch, engine.store, cache_dir=config.cache_dir, clock=engine.clock, is_daemon=True
        ) as chunks,
        open_fetch_service(
            engine.new_storage(cache=chunks),
            settings=config.fetch,
            piece_bytes=config.remote.chunk_size_bytes,
            index_directory=config.cache_dir,
            chunks=chunks,
            recorder=engine.metrics,
            clock=engine.clock,
        ) as fetches,
    ):
        engine.metrics.watch_reading(lambda: reading_use(fetches.statistics()))
        engine.storage.on_deleted(lambda metadata, log_key: _forget(fetches, chunks, metadata, log_key))
        yield fetches


async def _forget(
    fetches: FetchService, chunks: ChunkCache | None, metadata: RemoteLogSegmentMetadata, log_key: str
) -> None:
    """Remove a deleted segment from both caches."""
    if fetches.index_cache is not None:
        fetches.index_cache.remove([metadata.segment.id])
    if chunks is not None:
        await chunks.remove(log_key)
