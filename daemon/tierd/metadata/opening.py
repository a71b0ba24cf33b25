"""Opening of the configured metadata store; the package of a backend is loaded only if it is configured."""

import asyncio
from pathlib import Path

from tierd.config import MetadataSettings, PostgresSettings, RedisSettings
from tierd.metadata.connector import open_plugged
from tierd.metadata.kv import (
    KeyValueStore,
    MemoryKeyValueStore,
    PostgresKeyValueStore,
    RedisKeyValueStore,
    SqliteKeyValueStore,
)


async def open_metadata(settings: MetadataSettings, *, sqlite_path: Path, read_only: bool) -> KeyValueStore:
    """Open the configured store; the caller closes it.

    Read only, a store that was never made is an empty one: then nothing was ever copied.

    Args:
        settings: of the metadata room.
        sqlite_path: the file of the sqlite backend.
        read_only: refuse to write, and make nothing.

    Raises:
        MetadataError: it is damaged, or refuses us, or the package that it needs is not installed.
        BackendUnavailableError: it cannot be opened.
    """
    if settings.backend == "postgres":
        assert settings.postgres is not None, "the schema asks for the section of the backend"
        return await _open_postgres(settings.postgres, timeout_s=settings.timeout_s, read_only=read_only)
    if settings.backend == "redis":
        assert settings.redis is not None, "the schema asks for the section of the backend"
        return await _open_redis(settings.redis, timeout_s=settings.timeout_s, read_only=read_only)
    if settings.backend != "sqlite":
        return await open_plugged(settings, read_only=read_only)
    if read_only and not await asyncio.to_thread(sqlite_path.exists):
        return MemoryKeyValueStore()
    return await SqliteKeyValueStore.open(sqlite_path, read_only=read_only, timeout_s=settings.timeout_s)


async def _open_postgres(settings: PostgresSettings, *, timeout_s: float, read_only: bool) -> KeyValueStore:
    assert settings.dsn is not None, "the schema asks for the address"
    return await PostgresKeyValueStore.open(
        settings.dsn.get_secret_value(),
        schema_name=settings.schema_name,
        pool_size=settings.pool_size,
        timeout_s=timeout_s,
        read_only=read_only,
    )


async def _open_redis(settings: RedisSettings, *, timeout_s: float, read_only: bool) -> KeyValueStore:
    assert settings.url is not None, "the schema asks for the address"
    return await RedisKeyValueStore.open(
        settings.url.get_secret_value(),
        replicas=settings.replicas,
        pool_size=settings.pool_size,
        timeout_s=timeout_s,
        read_only=read_only,
    )
