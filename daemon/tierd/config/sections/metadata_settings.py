"""Metadata store: a row for each copied segment."""

from pydantic import Field, SecretStr, SerializeAsAny, model_validator

from tierd.config.connectors import METADATA, PluginSettings, plugin_faults
from tierd.config.places import PlacedFaultsError
from tierd.config.section import Settings
from tierd.config.values import AbsolutePath, Duration, OwnPath, Switch, Text, WholeNumber


class SqliteSettings(Settings):
    """The embedded metadata store."""

    path: OwnPath | None = Field(None, description="path of the database file; default: metadata.db in state_dir")


class PostgresSettings(Settings):
    """A PostgreSQL database that several brokers share."""

    dsn: SecretStr | None = Field(None, description="address of the database, with user and password")
    dsn_file: AbsolutePath | None = Field(None, description="file with the address, in place of the key above")
    schema_name: Text = Field(
        "tierd",
        alias="schema",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="schema of the table; tierd creates it if it is missing",
    )
    pool_size: WholeNumber = Field(4, ge=1, le=64, description="number of connections of this daemon")


class RedisSettings(Settings):
    """A Redis server that several brokers share. It needs ``appendonly yes`` and ``appendfsync always``."""

    url: SecretStr | None = Field(None, description="address of the server, redis:// or rediss://")
    url_file: AbsolutePath | None = Field(None, description="file with the address, in place of the key above")
    replicas: WholeNumber = Field(
        0, ge=0, le=16, description="number of replicas that must have a write before the write counts as durable"
    )
    pool_size: WholeNumber = Field(8, ge=1, le=256, description="number of connections of this daemon")


class MetadataSettings(Settings):
    """Metadata store: a row for each copied segment."""

    backend: Text = Field(
        "sqlite",
        description="sqlite: a file on this host, for one broker; postgres or redis: for several; or a plug-in",
    )
    timeout_s: Duration = Field(5.0, alias="timeout", gt=0, description="time limit of one call to the store")
    load_concurrency: WholeNumber = Field(
        8, ge=1, le=256, description="number of partitions that tierd reads from the store at the same time"
    )
    tombstone_retention_s: Duration = Field(
        86_400.0, alias="tombstone_retention", ge=3600, description="time that the row of a deleted segment stays"
    )
    strict_kafka_compat: Switch = Field(
        False, description="true: lookups use Kafka's algorithm, which misses some offsets of overlapping segments"
    )
    sqlite: SqliteSettings = Field(default_factory=SqliteSettings, description="settings of the sqlite backend")
    postgres: PostgresSettings | None = Field(None, description="settings of the postgres backend")
    redis: RedisSettings | None = Field(None, description="settings of the redis backend")
    plugin: SerializeAsAny[PluginSettings] | None = Field(None, description="settings of a backend of another package")

    @model_validator(mode="after")
    def _backend_has_its_address(self) -> "MetadataSettings":
        if faults := plugin_faults(METADATA, self.backend, self.plugin):
            raise PlacedFaultsError(faults)
        # Of the section that is used only: a fault in another one must not hide what this one lacks.
        match self.backend:
            case "postgres":
                missing = self.postgres is None or self.postgres.dsn is None
            case "redis":
                missing = self.redis is None or self.redis.url is None
            case _:
                missing = False
        if missing:
            first = {"postgres": "dsn or dsn_file", "redis": "url or url_file"}[self.backend]
            message = f"backend {self.backend} needs the section metadata.{self.backend}, with {first}"
            raise PlacedFaultsError([(("backend",), message)])
        return self
