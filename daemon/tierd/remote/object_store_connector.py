"""ObjectStoreConnector: an object store of another package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tierd.config import OBJECT_STORE, PluginSettings, RemoteSettings, find_connector, secrets_of
from tierd.errors import RemoteStorageError, TierError
from tierd.masking import Masking
from tierd.remote.forwarding import ForwardingObjectStore
from tierd.remote.object_store import ObjectStore

SettingsT = TypeVar("SettingsT", bound=PluginSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreConnector(Generic[SettingsT]):
    """An object store of another package.

    Attributes:
        interface_version: the version of this interface that the package was written for, 1.
        settings: the schema of ``remote.plugin``.
        open: makes the store and connects nothing. tierd puts deadlines, retries and limits around the store.
    """

    interface_version: int
    settings: type[SettingsT]
    open: Callable[[SettingsT], ObjectStore]


def open_plugged(settings: RemoteSettings) -> ObjectStore:
    """Make the object store of another package.

    Raises:
        RemoteStorageError: the package is not installed or does not fit, or its settings cannot be used.
    """
    assert settings.plugin is not None, "the schema asks for the section of a plug-in"
    try:
        connector = find_connector(OBJECT_STORE, settings.backend)
    except ValueError as error:
        raise RemoteStorageError(f"remote.backend: {error}", remedy="run tierd check-config on this host") from error
    if not isinstance(connector, ObjectStoreConnector):
        raise RemoteStorageError(
            f"remote.backend {settings.backend} is no ObjectStoreConnector", remedy="name a connector for objects"
        )
    try:
        opened: ObjectStore = connector.open(settings.plugin)
    except TierError:
        raise
    except Exception as error:  # noqa: BLE001 - a package may raise anything; the text may hold a password
        raise RemoteStorageError(
            f"remote.backend {settings.backend} failed to open with {type(error).__name__}",
            remedy="look at the settings in remote.plugin, and at the documentation of the package",
        ) from Masking(*secrets_of(settings.plugin)).error(error)
    return opened if hasattr(opened, "list_versions") else _UnversionedObjectStore(opened)


class _UnversionedObjectStore(ForwardingObjectStore):
    """Wrapper of a package's store that has no calls for versions and does not inherit from ``ObjectStore``."""

    list_versions = ObjectStore.list_versions
    delete_version = ObjectStore.delete_version
