"""Frozen settings per room: type, default, unit and one line of help for every key.

The names in YAML carry no unit, since the value does (``interval: 30s``); the names in Python do (``interval_s``).
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from tierd.config.places import Location, PlacedFaultsError, path_faults
from tierd.config.values import (
    AbsolutePath,
    Address,
    ByteLimit,
    ByteSize,
    Duration,
    KeyPrefix,
    MebibyteSize,
    Pattern,
    Rate,
    Switch,
    Text,
    Url,
    WholeNumber,
    full_match,
    split_address,
)

MIB = 1024 * 1024


class Settings(BaseModel):
    """One section of the file: frozen, strict about its keys, accepting YAML names and Python names alike."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class LogDirSettings(Settings):
    """One directory of partitions."""

    path: AbsolutePath = Field(description="a directory of the broker's log.dirs", examples=["/var/lib/kafka/data"])
    owner: Literal["kafka"] = Field("kafka", description="who appends there; tierd writes nothing into it")


class TopicsSettings(Settings):
    """Which topics are tiered: included and not excluded, by full-match regular expressions over the topic name."""

    include: tuple[Pattern, ...] = Field((".*",), description="topics to tier: full-match regular expressions")
    exclude: tuple[Pattern, ...] = Field(("__.*",), description="topics to leave alone, even when included")

    def wants(self, topic: str) -> bool:
        """Whether ``topic`` is tiered."""
        return full_match(self.include, topic) and not full_match(self.exclude, topic)


class LeadershipSettings(Settings):
    """Where tierd learns which partitions this broker leads."""

    source: Literal["static"] = Field(
        "static",
        description="static: every replica named below is led by this broker, at its latest local leader epoch",
    )
    partitions: tuple[Pattern, ...] = Field(
        (".*",), description="partitions led by this broker: full-match regular expressions over topic-partition"
    )


class SqliteSettings(Settings):
    """The embedded metadata store."""

    path: AbsolutePath | None = Field(None, description="the database file; default: metadata.db in state_dir")


class MetadataSettings(Settings):
    """The store that remembers what was copied."""

    backend: Literal["sqlite"] = Field("sqlite", description="sqlite: a file on this host, for one broker")
    timeout_s: Duration = Field(5.0, alias="timeout", gt=0, description="longest wait for one call to the store")
    sqlite: SqliteSettings = Field(default_factory=SqliteSettings, description="settings of the sqlite backend")


class FilesystemSettings(Settings):
    """Objects as files below one directory."""

    path: AbsolutePath = Field(
        description="directory of the objects, on another disk or a network mount", examples=["/mnt/tier"]
    )


class S3Settings(Settings):
    """Objects in an S3 bucket, of AWS or of any store that speaks S3 with conditional writes."""

    bucket: Text = Field(min_length=1, description="the bucket; it must exist", examples=["tierd"])
    endpoint_url: Url | None = Field(
        None, description="address of a store other than AWS, such as https://s3.example.com"
    )
    region: Text | None = Field(None, description="region of the bucket; default: as the AWS environment says")
    part_size_bytes: MebibyteSize = Field(
        25 * MIB,
        alias="part_size",
        ge=5 * MIB,
        le=5 * 1024 * MIB,
        description="size of one part of a multipart upload, a multiple of 1MiB; an upload has at most 10,000 parts",
    )
    max_concurrency: WholeNumber = Field(
        4, ge=1, le=64, description="parts and requests under way at once; more than 4 seldom gains anything"
    )
    path_style: Switch = Field(False, description="address the bucket by path instead of by host name")
    storage_class: Text | None = Field(
        None, min_length=1, description="storage class of .log objects, such as STANDARD_IA; default: the bucket's"
    )
    access_key_id: SecretStr | None = Field(
        None, description="access key; default: the AWS environment, profile or instance role"
    )
    access_key_id_file: AbsolutePath | None = Field(None, description="file that holds the access key, instead")
    secret_access_key: SecretStr | None = Field(None, description="secret key that belongs to the access key")
    secret_access_key_file: AbsolutePath | None = Field(None, description="file that holds the secret key, instead")
    ca_file: AbsolutePath | None = Field(
        None, description="PEM certificates to trust for endpoint_url; default: the system's"
    )
    connect_timeout_s: Duration = Field(
        10.0, alias="connect_timeout", gt=0, description="longest wait for a connection"
    )
    read_timeout_s: Duration = Field(
        60.0, alias="read_timeout", gt=0, description="longest silence of the store within a request"
    )

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> "S3Settings":
        if (self.access_key_id is None) != (self.secret_access_key is None):
            given, missing = (
                ("access_key_id", "secret_access_key")
                if self.secret_access_key is None
                else ("secret_access_key", "access_key_id")
            )
            raise PlacedFaultsError(
                [((given,), f"{given} is set without {missing}: set both, or neither for the AWS environment")]
            )
        return self


class RetrySettings(Settings):
    """How often a call to the store is repeated after a passing failure: waits double, with 20 % jitter."""

    attempts: WholeNumber = Field(5, ge=1, le=100, description="attempts for one call, the first included")
    backoff_s: Duration = Field(0.5, alias="backoff", gt=0, description="wait after the first failure")
    max_backoff_s: Duration = Field(30.0, alias="max_backoff", gt=0, description="longest wait between two attempts")


class RemoteSettings(Settings):
    """The object store: where the tier is."""

    backend: Literal["filesystem", "s3"] = Field(
        description="filesystem or s3; its section below must be filled in", examples=["s3"]
    )
    key_prefix: KeyPrefix = Field(
        "", description="begins every key, such as prod/tier; at most 127 bytes; a change never orphans old segments"
    )
    chunk_size_bytes: MebibyteSize = Field(
        4 * MIB,
        alias="chunk_size",
        ge=MIB,
        le=1024 * MIB,
        description="unit of checksums in the manifest and of ranged reads, a multiple of 1MiB",
    )
    filesystem: FilesystemSettings | None = Field(None, description="settings of the filesystem backend")
    s3: S3Settings | None = Field(None, description="settings of the s3 backend")
    retry: RetrySettings = Field(default_factory=RetrySettings, description="repeats of failed calls")

    @model_validator(mode="after")
    def _backend_has_its_section(self) -> "RemoteSettings":
        if getattr(self, self.backend) is None:
            first = {"filesystem": "path", "s3": "bucket"}[self.backend]
            message = f"backend {self.backend} needs the section remote.{self.backend}, with {first} at least"
            raise PlacedFaultsError([(("backend",), message)])
        return self


class CopySettings(Settings):
    """Copying finished segments to the tier."""

    interval_s: Duration = Field(
        30.0,
        alias="interval",
        gt=0,
        description="longest wait before a partition that waits for the broker is looked at again",
    )
    concurrency: WholeNumber = Field(4, ge=1, le=256, description="segments copied at once, one per partition at most")
    max_bytes_per_second: Rate = Field(None, gt=0, description="upload rate of all copies together")
    attempt_timeout_s: Duration = Field(
        900.0, alias="attempt_timeout", gt=0, description="deadline for copying one segment"
    )
    dangling_grace_s: Duration = Field(
        600.0, alias="dangling_grace", ge=0, description="age at which an unfinished copy of a dead process is removed"
    )
    dangling_max_per_run: WholeNumber = Field(
        16, ge=1, description="unfinished copies removed in one pass over a partition"
    )
    reconcile_interval_s: Duration = Field(
        300.0,
        alias="reconcile_interval",
        gt=0,
        description="how often every log dir is listed again, with jitter, in case an event was lost",
    )


class HoldSettings(Settings):
    """Keeping a queued segment although the broker deletes it."""

    mode: Literal["auto", "link", "descriptor", "none"] = Field(
        "auto", description="auto: hard links where the file system allows, else open files; none: the broker may win"
    )
    dir: AbsolutePath | None = Field(
        None,
        description="directory of the links, on the log dirs' file system but outside them; default: hold in state_dir",
    )
    max_bytes: ByteLimit = Field(
        50 * 1024 * MIB, ge=0, description="segments held at once, in bytes; beyond it segments are copied unheld"
    )


class FetchSettings(Settings):
    """Reading records back."""

    prefetch_bytes: ByteSize = Field(
        16 * MIB, alias="prefetch", ge=0, description="how far a sequential reader reads ahead in the tier"
    )


class HttpSettings(Settings):
    """The status endpoint."""

    listen: Address = Field("127.0.0.1:9405", description="address of /metrics, /livez, /readyz and /status")

    @property
    def host(self) -> str:
        """The host part of ``listen``, without brackets."""
        return split_address(self.listen)[0]

    @property
    def port(self) -> int:
        """The port of ``listen``; 0 lets the system choose."""
        return split_address(self.listen)[1]


class LoggingSettings(Settings):
    """The log of the daemon, on standard error."""

    format: Literal["json", "console"] = Field("json", description="json: an object a line; console: for people")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="the least severe event to write")


class TierdConfig(Settings):
    """The whole file. Rooms get their section, never this."""

    cluster_id: Text | None = Field(
        None, min_length=1, description="Kafka's cluster id; default: from meta.properties of the log dirs"
    )
    node_id: WholeNumber | None = Field(
        None, ge=0, description="this broker's id; default: from meta.properties of the log dirs"
    )
    state_dir: AbsolutePath = Field(
        Path("/var/lib/tierd"), description="tierd's own files: metadata, holds, the control socket, the lock"
    )
    log_dirs: tuple[LogDirSettings, ...] = Field(min_length=1, description="the broker's log.dirs, each with its owner")
    topics: TopicsSettings = Field(
        default_factory=TopicsSettings, description="topics to tier: included and not excluded"
    )
    leadership: LeadershipSettings = Field(
        default_factory=LeadershipSettings, description="which partitions this broker leads"
    )
    metadata: MetadataSettings = Field(default_factory=MetadataSettings, description="what was copied")
    remote: RemoteSettings = Field(description="the object store")
    copying: CopySettings = Field(default_factory=CopySettings, alias="copy", description="copying to the tier")
    hold: HoldSettings = Field(default_factory=HoldSettings, description="protection from the broker's retention")
    fetch: FetchSettings = Field(default_factory=FetchSettings, description="reading back")
    http: HttpSettings = Field(default_factory=HttpSettings, description="the status endpoint")
    shutdown_timeout_s: Duration = Field(
        30.0, alias="shutdown_timeout", ge=0, description="how long running copies may go on after SIGTERM"
    )
    logging: LoggingSettings = Field(default_factory=LoggingSettings, description="the daemon's log")

    @property
    def hold_dir(self) -> Path:
        """Where held segments are linked."""
        return self.hold.dir or self.state_dir / "hold"

    @property
    def sqlite_path(self) -> Path:
        """The SQLite metadata file."""
        return self.metadata.sqlite.path or self.state_dir / "metadata.db"

    @model_validator(mode="after")
    def _paths_keep_apart(self) -> "TierdConfig":
        log_dirs: dict[Location, Path] = {("log_dirs", i, "path"): d.path for i, d in enumerate(self.log_dirs)}
        own: dict[Location, Path | None] = {
            ("state_dir",): self.state_dir,
            ("hold", "dir"): self.hold.dir,
            ("metadata", "sqlite", "path"): self.metadata.sqlite.path,
            ("remote", "filesystem", "path"): self.remote.filesystem.path if self.remote.filesystem else None,
        }
        if faults := path_faults(log_dirs, {location: path for location, path in own.items() if path}):
            raise PlacedFaultsError(faults)
        return self
