"""A metadata backend and an object store for tierd, each in a database file of its own."""

from pydantic import Field, SecretStr

from acme_tierd.database import Database
from acme_tierd.objects import AcmeObjectStore
from acme_tierd.rows import AcmeKeyValueStore
from tierd.config import OwnPath, PluginSettings
from tierd.errors import MetadataError
from tierd.metadata import MetadataConnector, MetadataKeyFactory, MetadataOpening
from tierd.remote import ObjectStoreConnector

__all__ = ["OBJECTS", "ROWS", "AcmeKeyValueStore", "AcmeObjectStore", "AcmeSettings"]


class AcmeSettings(PluginSettings):
    """Settings of the database: its place and its password."""

    path: OwnPath = Field(description="the database file")
    password: SecretStr | None = Field(None, description="must be 'open sesame'")
    password_file: OwnPath | None = Field(None, description="file that holds the password, instead")


async def _open_rows(settings: AcmeSettings, opening: MetadataOpening) -> AcmeKeyValueStore:
    if settings.password is None or settings.password.get_secret_value() != "open sesame":
        raise MetadataError(f"{settings.path}: wrong password", remedy="correct metadata.plugin.password")
    database = Database(settings.path, timeout_s=opening.timeout_s, read_only=opening.read_only)
    return await AcmeKeyValueStore.open(database)


def _open_objects(settings: AcmeSettings) -> AcmeObjectStore:
    return AcmeObjectStore(Database(settings.path))


def _keys(cluster_id: str) -> MetadataKeyFactory:
    return MetadataKeyFactory(cluster_id, root="acme/")


ROWS = MetadataConnector(interface_version=1, settings=AcmeSettings, open=_open_rows, keys=_keys)
OBJECTS = ObjectStoreConnector(interface_version=1, settings=AcmeSettings, open=_open_objects)
