"""Opening of the configured metadata store, built in or of another package; a package is loaded only if configured."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from tierd.clock import SystemClock
from tierd.config import (
    METADATA,
    MetadataSettings,
    PluginSettings,
    PostgresSettings,
    RedisSettings,
    find_connector,
    secrets_of,
)
from tierd.errors import BackendUnavailableError, MetadataError, TierError
from tierd.masking import Masking
from tierd.metadata.kv import (
    DeadlineKeyValueStore,
    KeyValueStore,
    MemoryKeyValueStore,
    PostgresKeyValueStore,
    RedisKeyValueStore,
    SqliteKeyValueStore,
)
from tierd.metadata.rows import MetadataKeyFactory

SettingsT = TypeVar("SettingsT", bound=PluginSettings)
_OPENING_TIMEOUTS: Final = 4  # connecting and making a table are several calls


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOpening:
    """Conditions under which a metadata store is opened.

    Attributes:
        timeout_s: longest wait for a connection and for an answer, ``metadata.timeout``.
        read_only: change nothing and make nothing; a store that was never made is then an error.
    """

    timeout_s: float
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataConnector(Generic[SettingsT]):
    """A metadata backend of another package: a store, and the factory of its keys.

    Attributes:
        interface_version: the version of this interface that the package was written for, 1.
        settings: the schema of ``metadata.plugin``.
        open: opens the store; raises ``MetadataError`` or ``BackendUnavailableError``.
        keys: makes the key factory of a cluster, for a store that tierd's keys share with others.
    """

    interface_version: int
    settings: type[SettingsT]
    open: Callable[[SettingsT, MetadataOpening], Awaitable[KeyValueStore]]
    keys: Callable[[str], MetadataKeyFactory] = MetadataKeyFactory


async def open_plugged(settings: MetadataSettings, *, read_only: bool) -> KeyValueStore:
    """Open the store of another package; every call of the store has a deadline, even if the package sets none.

    Raises:
        MetadataError: the package is not installed or does not fit, or its store is damaged or refuses us.
        BackendUnavailableError: the store cannot be opened.
    """
    connector, backend, timeout_s = _connector(settings), settings.backend, settings.timeout_s
    assert settings.plugin is not None, "the schema asks for the section of a plug-in"
    masking = Masking(*secrets_of(settings.plugin))
    try:
        async with asyncio.timeout(_OPENING_TIMEOUTS * timeout_s):
            store = await connector.open(settings.plugin, MetadataOpening(timeout_s=timeout_s, read_only=read_only))
    except TierError:
        raise
    except TimeoutError as error:
        raise BackendUnavailableError(
            f"metadata.backend {backend} did not open in time", remedy="look at the store; tierd tries again"
        ) from error
    except Exception as error:  # noqa: BLE001 - a package may raise anything; the text may hold a password
        raise MetadataError(
            f"metadata.backend {backend} failed to open with {type(error).__name__}",
            remedy="look at the settings in metadata.plugin, and at the documentation of the package",
        ) from masking.error(error)
    return DeadlineKeyValueStore(store, timeout_s=timeout_s, clock=SystemClock(), masking=masking)


def metadata_keys(settings: MetadataSettings, cluster_id: str) -> MetadataKeyFactory:
    """Return the key factory of a cluster in the configured store.

    Raises:
        InvalidMetadataError: the cluster id cannot be part of a key.
        MetadataError: the package of the backend is not installed or does not fit.
    """
    if settings.backend in METADATA.built_in:
        return MetadataKeyFactory(cluster_id)
    return _connector(settings).keys(cluster_id)


def _connector(settings: MetadataSettings) -> MetadataConnector[PluginSettings]:
    try:
        found = find_connector(METADATA, settings.backend)
    except ValueError as error:
        raise MetadataError(f"metadata.backend: {error}", remedy="run tierd check-config on this host") from error
    if not isinstance(found, MetadataConnector):
        raise MetadataError(
            f"metadata.backend {settings.backend} is no MetadataConnector", remedy="name a connector for metadata"
        )
    return found


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
