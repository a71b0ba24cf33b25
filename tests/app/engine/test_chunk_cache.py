"""Chunk cache of daemon and commands, and the creation of its directory."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.app.engine.host_caches import chunk_cache, reading_use
from tierd.config import TierdConfig
from tierd.remote import CacheStatistics, ChunkCache
from tierd.tiering import FetchStatistics
from tierd.tiering.reading.fetch_gate import GateStatistics

MakeConfig = Callable[..., TierdConfig]


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    def make(cache_bytes: int = 1 << 20) -> TierdConfig:
        settings = {
            "state_dir": str(tmp_path / "state"),
            "log_dirs": [{"path": str(tmp_path / "kafka")}],
            "remote": {"backend": "filesystem", "filesystem": {"path": str(tmp_path / "tier")}},
            "fetch": {"cache_bytes": cache_bytes},
        }
        return TierdConfig.model_validate(settings)

    return make


def opened(
    config: TierdConfig, store: MemoryObjectStore, *, is_daemon: bool
) -> AbstractAsyncContextManager[ChunkCache | None]:
    return chunk_cache(config.fetch, store, cache_dir=config.cache_dir, clock=FakeClock(), is_daemon=is_daemon)


@pytest.mark.parametrize("is_daemon", [True, False])
async def test_chunk_cache_is_below_the_state_dir(make_config: MakeConfig, tmp_path: Path, is_daemon: bool) -> None:
    async with opened(make_config(), MemoryObjectStore(), is_daemon=is_daemon) as cache:
        assert cache is not None
        assert (tmp_path / "state/cache/chunks").is_dir()


async def test_capacity_of_zero_opens_no_cache(make_config: MakeConfig, tmp_path: Path) -> None:
    async with opened(make_config(0), MemoryObjectStore(), is_daemon=True) as cache:
        assert cache is None
    assert not (tmp_path / "state").exists()


async def test_command_of_another_user_does_not_open_or_make_the_cache_directory(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierd.app.engine.host_caches.os.geteuid", lambda: 4711)
    store = MemoryObjectStore()
    async with opened(make_config(), store, is_daemon=False) as cache:
        assert cache is None
    assert not (tmp_path / "state").exists()


def test_metrics_have_only_the_open_caches() -> None:
    statistics = FetchStatistics(GateStatistics(1, 2, 3), CacheStatistics(hits=4, entries=5), None)
    use = reading_use(statistics)
    assert (use.running, use.pending, use.rejected) == (1, 2, 3)
    assert list(use.caches) == ["chunks"]
    assert (use.caches["chunks"].hits, use.caches["chunks"].entries) == (4, 5)
