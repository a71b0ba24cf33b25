"""Removal of erased segments from the caches on disk of a host, with and without open caches of a daemon."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import PARTITION
from tierd.app.engine.host_caches import HostCaches
from tierd.model import ByteRange, uuid_to_text
from tierd.pipeline import LeftSegment
from tierd.remote import ChunkCache, ObjectKeyFactory

KEYS = ObjectKeyFactory("tier", "cluster")
GONE, LIVE = (
    LeftSegment(id=uuid4(), start_offset=start, end_offset=start + 9, size_bytes=4, custom_metadata=None)
    for start in (0, 10)
)


def log_key(segment: LeftSegment) -> str:
    folder = KEYS.partition_prefix(PARTITION)
    return f"{folder}{segment.start_offset:020d}-{uuid_to_text(segment.id)}.log"


@pytest.fixture
async def chunks(tmp_path: Path) -> AsyncIterator[ChunkCache]:
    """Return a chunk cache with a chunk of each segment on disk."""
    store = MemoryObjectStore()
    for segment in (GONE, LIVE):
        await store.put(log_key(segment), b"data")
    cache = await ChunkCache.open(store, directory=tmp_path / "chunks", capacity_bytes=1 << 20, clock=FakeClock())
    for segment in (GONE, LIVE):
        await cache.get(log_key(segment), ByteRange(0, 3))
    await eventually(lambda: cache.statistics().entries == 2, what="the chunks on disk")
    yield cache
    await cache.close()


def write_indexes(directory: Path) -> None:
    for segment in (GONE, LIVE):
        for suffix in (".index", ".timeindex", ".txnindex"):
            (directory / f"{segment.start_offset}_{uuid_to_text(segment.id)}{suffix}").write_bytes(b"")


async def test_cached_files_of_removed_segments_are_deleted_and_others_are_kept(
    tmp_path: Path, chunks: ChunkCache
) -> None:
    await chunks.close()
    write_indexes(tmp_path)
    caches = HostCaches(tmp_path, KEYS, None)
    assert await caches.evict(PARTITION, [GONE]) == 0
    assert len(list((tmp_path / "chunks").glob("*.chunk"))) == 1
    left = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert len(left) == 3
    assert all(uuid_to_text(LIVE.id) in name for name in left)


async def test_open_cache_purges_files_that_another_cache_wrote(tmp_path: Path, chunks: ChunkCache) -> None:
    other = await ChunkCache.open(
        MemoryObjectStore(), directory=tmp_path / "chunks", capacity_bytes=1 << 20, clock=FakeClock()
    )
    assert await other.purge([log_key(GONE)]) == 0
    assert len(list((tmp_path / "chunks").glob("*.chunk"))) == 1
    assert await other.get(log_key(LIVE), ByteRange(0, 3)) == b"data", "from disk: its store is empty"
    await other.close()


async def test_eviction_without_a_cache_directory_finds_no_file(tmp_path: Path) -> None:
    assert await HostCaches(tmp_path / "nowhere", KEYS, None).evict(PARTITION, [GONE, LIVE]) == 0


async def test_purge_reports_a_chunk_whose_download_is_not_finished(tmp_path: Path, chunks: ChunkCache) -> None:
    assert await chunks.purge([log_key(GONE)]) == 0
    await chunks.get(log_key(GONE), ByteRange(0, 2))  # on its way to the disk when this returns
    assert await chunks.purge([log_key(GONE)]) == 1
