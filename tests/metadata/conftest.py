"""Every metadata store, as one fixture."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.services.postgres import PostgresService
from tests.services.redis import RedisService, empty_database
from tierd.metadata import KeyValueStore, MemoryKeyValueStore
from tierd.metadata.kv import PostgresKeyValueStore, RedisKeyValueStore, SqliteKeyValueStore


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KeyValueStore]:
    """Return an empty store; the test runs once per backend."""
    store = await _opened(request.param, request, tmp_path)
    yield store
    await store.close()


async def _opened(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> KeyValueStore:
    match backend:
        case "memory":
            return MemoryKeyValueStore()
        case "sqlite":
            return await SqliteKeyValueStore.open(tmp_path / "metadata.db")
        case "postgres":
            postgres: PostgresService = request.getfixturevalue("postgres_service")
            return await PostgresKeyValueStore.open(postgres.dsn, schema_name=f"test_{uuid4().hex}")
        case _:
            redis: RedisService = request.getfixturevalue("redis_service")
            return await RedisKeyValueStore.open(empty_database(redis.url))
