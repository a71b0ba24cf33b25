"""Frozen settings per room: type, default, unit and one line of help for every key.

The names in YAML carry no unit, since the value does (``interval: 30s``); the names in Python do (``interval_s``).
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tierd.config.leadership_settings import LeadershipSettings
from tierd.config.metadata_settings import MetadataSettings
from tierd.config.own_log_settings import LogCleanerSettings
from tierd.config.pipeline_settings import PipelineSettings
from tierd.config.places import PlacedFaultsError, path_faults
from tierd.config.remote_settings import RemoteSettings
from tierd.config.section import Settings
from tierd.config.topic_settings import TopicsSettings, left_to_brokers
from tierd.config.traversal import is_written, leaf_values
from tierd.config.values import (
    MIB,
    AbsolutePath,
    Address,
    ByteLimit,
    ByteSize,
    Duration,
    OwnPath,
    Rate,
    Text,
    WholeNumber,
    split_address,
)


class LogDirSettings(Settings):
    """One directory of partitions."""

    path: AbsolutePath = Field(description="a directory of the broker's log.dirs", examples=["/var/lib/kafka/data"])
    owner: Literal["kafka", "tierd"] = Field(
        "kafka", description="who appends there; kafka: a broker, and tierd writes nothing into it; tierd: tierd alone"
    )


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
    quota_windows: WholeNumber = Field(11, ge=2, le=3600, description="windows that the upload rate is measured over")
    quota_window_s: Duration = Field(1.0, alias="quota_window", gt=0, description="length of one window")
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


class ExpireSettings(Settings):
    """Removing from the tier what retention does not keep."""

    interval_s: Duration = Field(
        30.0, alias="interval", gt=0, description="longest wait before a partition that has something due is looked at"
    )
    concurrency: WholeNumber = Field(4, ge=1, le=256, description="segments deleted at once, over all partitions")
    grace_s: Duration = Field(
        3600.0,
        alias="grace",
        ge=0,
        description="how long an expired segment can still be taken back with tierd undelete",
    )


class HoldSettings(Settings):
    """Keeping a queued segment although the broker deletes it."""

    mode: Literal["auto", "link", "descriptor", "none"] = Field(
        "auto", description="auto: hard links where the file system allows, else open files; none: the broker may win"
    )
    dir: OwnPath | None = Field(
        None,
        description="directory of the links, on the log dirs' file system but outside them; default: hold in state_dir",
    )
    max_bytes: ByteLimit = Field(
        50 * 1024 * MIB, ge=0, description="segments held at once, in bytes; beyond it segments are copied unheld"
    )


class FetchSettings(Settings):
    """Reading records back."""

    cache_dir: OwnPath | None = Field(None, description="directory of cached chunks; default: cache in state_dir")
    cache_bytes: ByteSize = Field(1024 * MIB, ge=0, description="size of the chunk cache on disk; 0: none")
    index_cache_bytes: ByteSize = Field(1024 * MIB, ge=0, description="size of the index cache on disk")
    prefetch_bytes: ByteSize = Field(
        32 * MIB, alias="prefetch", ge=0, description="how far a sequential reader reads ahead in the tier"
    )
    concurrency: WholeNumber = Field(10, ge=1, le=256, description="remote reads at once")
    max_pending: WholeNumber = Field(100, ge=1, le=100_000, description="remote reads that may wait for their turn")
    max_wait_s: Duration = Field(0.5, alias="max_wait", gt=0, description="longest wait of one fetch for remote bytes")
    timestamp_timeout_s: Duration = Field(
        30.0, alias="timestamp_timeout", gt=0, description="longest search for an offset by timestamp"
    )
    max_bytes_per_second: Rate = Field(None, gt=0, description="rate of all remote reads together")
    quota_windows: WholeNumber = Field(11, ge=2, le=3600, description="windows that the read rate is measured over")
    quota_window_s: Duration = Field(1.0, alias="quota_window", gt=0, description="length of one window")


class CostSettings(Settings):
    """Prices of the tier."""

    price_file: AbsolutePath | None = Field(
        None, description="YAML file of prices for tierd cost and tierd estimate; default: list prices of S3 Standard"
    )


class HttpSettings(Settings):
    """The status endpoint."""

    listen: Address = Field("127.0.0.1:9405", description="address of /metrics, /livez, /readyz and /status")

    @property
    def host(self) -> str:
        """Return the host part of ``listen``, without brackets."""
        return split_address(self.listen)[0]

    @property
    def port(self) -> int:
        """Return the port of ``listen``; 0 lets the system choose."""
        return split_address(self.listen)[1]


class LoggingSettings(Settings):
    """The log of the daemon, on standard error."""

    format: Literal["json", "console"] = Field("json", description="json: an object a line; console: for people")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="the least severe event to write")


def default_state_dir() -> Path:
    """Return the ``state_dir`` of a file that says none."""
    default: Path = TierdConfig.model_fields["state_dir"].default
    return default


class TierdConfig(Settings):
    """The whole file."""

    cluster_id: Text | None = Field(
        None, min_length=1, description="Kafka's cluster id; default: from meta.properties of the log dirs"
    )
    node_id: WholeNumber | None = Field(
        None, ge=0, description="this broker's id; default: from meta.properties of the log dirs"
    )
    state_dir: OwnPath = Field(
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
    expire: ExpireSettings = Field(default_factory=ExpireSettings, description="removing what retention does not keep")
    hold: HoldSettings = Field(default_factory=HoldSettings, description="protection from the broker's retention")
    fetch: FetchSettings = Field(default_factory=FetchSettings, description="reading back")
    log_cleaner: LogCleanerSettings = Field(
        default_factory=LogCleanerSettings, description="cleaning in log dirs with owner: tierd"
    )
    pipeline: PipelineSettings = Field(
        default_factory=PipelineSettings, description="compaction, merging and audit by Spark"
    )
    cost: CostSettings = Field(default_factory=CostSettings, description="what the tier costs")
    http: HttpSettings = Field(default_factory=HttpSettings, description="the status endpoint")
    shutdown_timeout_s: Duration = Field(
        30.0, alias="shutdown_timeout", ge=0, description="how long running copies may go on after SIGTERM"
    )
    logging: LoggingSettings = Field(default_factory=LoggingSettings, description="the daemon's log")

    @property
    def hold_dir(self) -> Path:
        """Return the directory in which held segments are linked."""
        return self.hold.dir or self.state_dir / "hold"

    @property
    def cache_dir(self) -> Path:
        """Return the directory of fetched chunks and indexes."""
        return self.fetch.cache_dir or self.state_dir / "cache"

    @property
    def pipeline_dir(self) -> Path:
        """Return the directory of the job's log and scratch files."""
        return self.pipeline.local_dir or self.state_dir / "pipeline"

    @property
    def sqlite_path(self) -> Path:
        """Return the path of the SQLite metadata file."""
        return self.metadata.sqlite.path or self.state_dir / "metadata.db"

    @model_validator(mode="after")
    def _paths_keep_apart(self) -> "TierdConfig":
        paths = [(place, field, value) for place, field, value in leaf_values(self) if isinstance(value, Path)]
        log_dirs = {place: path for place, _, path in paths if place[0] == "log_dirs"}
        own = {place: path for place, field, path in paths if is_written(field)}
        if faults := path_faults(log_dirs, own):
            raise PlacedFaultsError(faults)
        return self

    @model_validator(mode="after")
    def _brokers_can_be_asked(self) -> "TierdConfig":
        if self.leadership.kafka is None and (left := left_to_brokers(self.topics)):
            message = "from-broker needs the section leadership.kafka, with bootstrap_servers at least: add it"
            raise PlacedFaultsError(
                [(("topics", *location), f"{message}, or write what the tier keeps") for location in left]
            )
        return self
