"""The stack of object stores and the metadata store, as the configuration asks for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import structlog

from tierd.app.identity import BrokerIdentity
from tierd.clock import Clock
from tierd.config import TierdConfig
from tierd.errors import LogDirOfflineError
from tierd.log import MetaProperties, read_meta_properties
from tierd.metadata import (
    KeyValueStore,
    MemoryKeyValueStore,
    PostgresKeyValueStore,
    RedisKeyValueStore,
    SqliteKeyValueStore,
)
from tierd.remote import ObjectStore, ObjectStoreCall, SegmentStorage, Transform, open_object_store

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def object_store(
    config: TierdConfig,
    *,
    clock: Clock,
    on_call: Callable[[ObjectStoreCall], None] | None = None,
    on_attempt: Callable[[ObjectStoreCall], None] | None = None,
) -> AsyncIterator[ObjectStore]:
    """Give the configured object store, with deadlines, retries and observation around it; close it afterwards."""
    store = open_object_store(
        config.remote,
        clock=clock,
        max_bytes_per_second=config.copying.max_bytes_per_second,
        on_call=on_call,
        on_attempt=on_attempt,
    )
    try:
        yield store
    finally:
        await store.close()


def segment_storage(
    config: TierdConfig, identity: BrokerIdentity, store: ObjectStore, transform: Transform
) -> partial[SegmentStorage]:
    """What makes segment storages over ``store``; how they read ranges may still be said."""
    return partial(
        SegmentStorage,
        store,
        cluster_id=identity.cluster_id,
        broker_id=identity.node_id,
        key_prefix=config.remote.key_prefix,
        chunk_size=config.remote.chunk_size_bytes,
        transform=transform,
    )


@contextlib.asynccontextmanager
async def metadata_store(config: TierdConfig, *, read_only: bool) -> AsyncIterator[KeyValueStore]:
    """Open the configured metadata store; close it afterwards.

    Read only, a store that was never made is an empty one: then nothing was ever copied.

    Raises:
        MetadataError: it is damaged, or refuses us, or the package that it needs is not installed.
        BackendUnavailableError: it cannot be opened.
    """
    store = await _open_metadata_store(config, read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


async def _open_metadata_store(config: TierdConfig, *, read_only: bool) -> KeyValueStore:
    settings = config.metadata
    if settings.backend == "postgres":
        assert settings.postgres is not None, "the schema asks for the section of the backend"
        assert settings.postgres.dsn is not None, "the schema asks for the address"
        return await PostgresKeyValueStore.open(
            settings.postgres.dsn.get_secret_value(),
            schema_name=settings.postgres.schema_name,
            pool_size=settings.postgres.pool_size,
            timeout_s=settings.timeout_s,
            read_only=read_only,
        )
    if settings.backend == "redis":
        assert settings.redis is not None, "the schema asks for the section of the backend"
        assert settings.redis.url is not None, "the schema asks for the address"
        return await RedisKeyValueStore.open(
            settings.redis.url.get_secret_value(),
            replicas=settings.redis.replicas,
            pool_size=settings.redis.pool_size,
            timeout_s=settings.timeout_s,
            read_only=read_only,
        )
    path = config.sqlite_path
    if read_only and not await asyncio.to_thread(path.exists):
        return MemoryKeyValueStore()
    return await SqliteKeyValueStore.open(path, read_only=read_only, timeout_s=settings.timeout_s)


async def log_dir_identities(config: TierdConfig) -> dict[Path, MetaProperties | None]:
    """Read the ``meta.properties`` of every log dir; one that is offline says nothing while another one does.

    Raises:
        CheckpointError: one cannot be understood.
        LogDirOfflineError: none can be read.
    """
    found: dict[Path, MetaProperties | None] = {}
    offline: list[LogDirOfflineError] = []
    for log_dir in config.log_dirs:
        try:
            found[log_dir.path] = await asyncio.to_thread(read_meta_properties, log_dir.path)
        except LogDirOfflineError as error:
            offline.append(error)
            log.warning("log_dir_offline", log_dir=str(log_dir.path), problem=str(error), remedy=error.remedy)
    if offline and not found:
        raise offline[0]
    return found
