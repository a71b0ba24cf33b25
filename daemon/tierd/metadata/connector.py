"""MetadataConnector: a metadata store of another package, with the factory of its keys."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tierd.clock import SystemClock
from tierd.config import METADATA, MetadataSettings, PluginSettings, find_connector, secrets_of
from tierd.errors import BackendUnavailableError, MetadataError, TierError
from tierd.masking import Masking
from tierd.metadata.kv import DeadlineKeyValueStore, KeyValueStore
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
