"""Caches of a running daemon: open with it, shown in its metrics, and purged of deleted segments."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.contracts.remote_storage import Rolled, rolled
from tests.fakes.eventually import eventually
from tests.fakes.transforms import mixed_content
from tierd.app.engine.compose import Engine, compose
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.host_caches import HostCaches, fetching
from tierd.config import TierdConfig
from tierd.errors import RemoteIntegrityError
from tierd.model import ByteRange, IndexType
from tierd.pipeline import LeftSegment
from tierd.remote import ChunkCache, ObjectKeyFactory
from tierd.tiering import FetchService

MIB = 1 << 20


@pytest.fixture
def one(tmp_path: Path) -> Rolled:
    (tmp_path / "segment").mkdir()
    made = rolled(tmp_path / "segment", mixed_content(3 * MIB))
    return replace(made, data=replace(made.data, offset_index=b"", time_index=b""))


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    for name in ("state", "kafka"):
        (tmp_path / name).mkdir()
    config = TierdConfig.model_validate(
        {
            "cluster_id": "dGllcmQtc3ludGhldGljLQ",
            "node_id": 1,
            "state_dir": str(tmp_path / "state"),
            "log_dirs": [{"path": str(tmp_path / "kafka")}],
            "remote": {"backend": "filesystem", "filesystem": {"path": str(tmp_path / "store")}, "chunk_size": "1MiB"},
        }
    )
    async with compose(Deployment(config, tmp_path / "tierd.yaml")) as engine:
        await engine.store.own()
        yield engine


def chunks_of(fetches: FetchService) -> ChunkCache:
    assert fetches.chunk_cache is not None
    return fetches.chunk_cache


async def read_all(fetches: FetchService, one: Rolled) -> None:
    content = await fetches._remote.fetch_log_segment(one.metadata, ByteRange(0, one.metadata.size_bytes - 1))
    assert content == one.content
    assert fetches.index_cache is not None
    assert await fetches.index_cache.read(one.metadata, IndexType.OFFSET) == one.indexes[IndexType.OFFSET]


async def test_reads_fill_both_caches_and_their_metrics(engine: Engine, one: Rolled, tmp_path: Path) -> None:
    await engine.storage.copy_log_segment_data(one.metadata, one.data)
    async with fetching(engine) as fetches:
        await read_all(fetches, one)
        await eventually(lambda: chunks_of(fetches).statistics().entries == 3, what="the chunks on disk")
        assert b'tierd_cache_entries{cache="chunks"} 3.0' in engine.metrics.render()[0]
    assert len(list((tmp_path / "state/cache/chunks").glob("*.chunk"))) == 3, "chunks stay for the next start"
    async with fetching(engine) as fetches:
        await read_all(fetches, one)
        assert chunks_of(fetches).statistics().misses == 0


async def test_damaged_chunk_is_replaced_in_the_cache_once_the_store_is_sound(
    engine: Engine, one: Rolled, tmp_path: Path
) -> None:
    await engine.storage.copy_log_segment_data(one.metadata, one.data)
    (log,) = (tmp_path / "store").rglob("*.log")
    sound = log.read_bytes()
    log.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
    async with fetching(engine) as fetches:
        with pytest.raises(RemoteIntegrityError, match="chunk 0 is damaged"):
            await read_all(fetches, one)
        log.write_bytes(sound)
        await read_all(fetches, one)


async def test_deleted_segment_is_removed_from_the_caches(engine: Engine, one: Rolled, tmp_path: Path) -> None:
    await engine.storage.copy_log_segment_data(one.metadata, one.data)
    async with fetching(engine) as fetches:
        await read_all(fetches, one)
        await eventually(lambda: chunks_of(fetches).statistics().entries == 3, what="the chunks on disk")
        segment_id: UUID = one.metadata.segment.id
        assert fetches.index_cache is not None
        assert segment_id in fetches.index_cache
        await engine.storage.delete_log_segment_data(one.metadata)
        assert segment_id not in fetches.index_cache
        assert chunks_of(fetches).statistics().entries == 0
    assert list((tmp_path / "state/cache/chunks").glob("*.chunk")) == []


async def test_deletion_after_the_caches_were_closed_succeeds(engine: Engine, one: Rolled) -> None:
    await engine.storage.copy_log_segment_data(one.metadata, one.data)
    async with fetching(engine):
        pass
    await engine.storage.delete_log_segment_data(one.metadata)


async def test_caches_of_a_running_daemon_release_files_for_an_eviction(engine: Engine, one: Rolled) -> None:
    await engine.storage.copy_log_segment_data(one.metadata, one.data)
    async with fetching(engine) as fetches:
        assert fetches.index_cache is not None
        assert fetches.chunk_cache is not None
        await fetches.index_cache.read(one.metadata, IndexType.OFFSET)
        reader = engine.new_storage(cache=fetches.chunk_cache)
        assert await reader.fetch_log_segment(one.metadata, ByteRange(0, one.metadata.size_bytes - 1)) == one.content
        cache_dir = engine.settings.config.cache_dir
        keys = ObjectKeyFactory("", engine.identity.cluster_id)
        caches, left = HostCaches(cache_dir, keys, fetches), LeftSegment.of(one.metadata)
        partition = one.metadata.segment.topic_id_partition
        assert len(list(cache_dir.glob("*index"))) == 3
        assert await caches.evict(partition, [left]) > 0, "a thread may still read them"
        assert one.metadata.segment.id not in fetches.index_cache
        await eventually(lambda: not list(cache_dir.glob("*index")), what="other names for the indexes")
        await eventually(lambda: fetches.chunk_cache._unwritten.size_bytes == 0, what="the chunks on disk")  # type: ignore[union-attr]
    assert await HostCaches(cache_dir, keys, None).evict(partition, [left]) == 0
    assert not list(cache_dir.rglob("*index*"))
    assert not list(cache_dir.rglob("*.chunk"))
