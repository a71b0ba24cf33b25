"""Frozen settings per room: type, default, unit and one line of help for every key.

The names in YAML carry no unit, since the value does (``interval: 30s``); the names in Python do (``interval_s``).
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tierd.config.places import PlacedFaultsError
from tierd.config.section import Settings
from tierd.config.sections.control_settings import ControlSettings
from tierd.config.sections.cost_settings import CostSettings
from tierd.config.sections.drill_settings import DrillSettings
from tierd.config.sections.host_settings import HostSettings
from tierd.config.sections.kafka_endpoint_settings import KafkaEndpointSettings
from tierd.config.sections.leadership_settings import LeadershipSettings
from tierd.config.sections.own_log_settings import LogCleanerSettings
from tierd.config.sections.pipeline_settings import PipelineSettings
from tierd.config.sections.push_settings import PushReplicationSettings
from tierd.config.sections.remote_settings import RemoteSettings
from tierd.config.sections.tiered_log_settings import FetchSettings, HoldSettings
from tierd.config.sections.topic_settings import TopicsSettings, left_to_brokers
from tierd.config.values import Address, Duration, Rate, Switch, WholeNumber, split_address


class CopySettings(Settings):
    """Copies of finished segments to the tier."""

    interval_s: Duration = Field(
        30.0,
        alias="interval",
        gt=0,
        description="longest time between two checks of a partition that waits for the broker",
    )
    concurrency: WholeNumber = Field(
        4, ge=1, le=256, description="number of segments copied at the same time; at most one for each partition"
    )
    max_bytes_per_second: Rate = Field(None, gt=0, description="limit of the upload rate of all copies together")
    quota_windows: WholeNumber = Field(
        11, ge=2, le=3600, description="number of windows over which the upload rate is measured"
    )
    quota_window_s: Duration = Field(1.0, alias="quota_window", gt=0, description="length of one window")
    attempt_timeout_s: Duration = Field(
        900.0, alias="attempt_timeout", gt=0, description="deadline for copying one segment"
    )
    dangling_grace_s: Duration = Field(
        600.0,
        alias="dangling_grace",
        ge=0,
        description="age at which tierd removes an unfinished copy of a dead process",
    )
    dangling_max_per_run: WholeNumber = Field(
        16, ge=1, description="largest number of unfinished copies that one pass over a partition removes"
    )
    reconcile_interval_s: Duration = Field(
        300.0,
        alias="reconcile_interval",
        gt=0,
        description="time between two scans of all log dirs, with jitter; a scan finds changes whose event was lost",
    )


class ExpireSettings(Settings):
    """Deletion of expired segments from the tier."""

    interval_s: Duration = Field(
        30.0,
        alias="interval",
        gt=0,
        description="longest time between two checks of a partition that has expired segments",
    )
    concurrency: WholeNumber = Field(
        4, ge=1, le=256, description="number of segments deleted at the same time, over all partitions"
    )
    grace_s: Duration = Field(
        3600.0,
        alias="grace",
        ge=0,
        description="time during which tierd undelete can take back an expired segment",
    )


class CatalogueSettings(Settings):
    """The catalogue in the bucket: topics, positions of partitions and groups, and files of the nodes."""

    enabled: Switch = Field(True, description="true: the daemon keeps the catalogue, which restores need")
    interval_s: Duration = Field(
        60.0, alias="interval", ge=1, description="time between two looks at the positions; an object needs a change"
    )
    keep_s: Duration = Field(
        90 * 86400.0,
        alias="keep",
        ge=86400,
        description="age up to which positions stay: all of a day, one an hour of a month, then one a day",
    )


class HttpSettings(Settings):
    """The HTTP port for status and metrics."""

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

    format: Literal["json", "console"] = Field(
        "json", description="json: one object on each line; console: text for people"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest severity of the events that tierd logs"
    )


class TierdConfig(HostSettings):
    """The whole file."""

    topics: TopicsSettings = Field(
        default_factory=TopicsSettings, description="topics to tier, and the settings of each topic"
    )
    leadership: LeadershipSettings = Field(
        default_factory=LeadershipSettings,
        description="source of leadership: how tierd learns which partitions this broker leads",
    )
    remote: RemoteSettings = Field(description="the object store")
    copying: CopySettings = Field(default_factory=CopySettings, alias="copy", description="copies to the tier")
    expire: ExpireSettings = Field(default_factory=ExpireSettings, description="deletion of expired segments")
    hold: HoldSettings = Field(
        default_factory=HoldSettings, description="protection of waiting segments from the broker's retention"
    )
    fetch: FetchSettings = Field(default_factory=FetchSettings, description="reads from the tier")
    log_cleaner: LogCleanerSettings = Field(
        default_factory=LogCleanerSettings, description="the cleaner of compacted logs in log dirs with owner: tierd"
    )
    pipeline: PipelineSettings = Field(
        default_factory=PipelineSettings, description="compaction, merging, erasure and audit by Spark"
    )
    catalogue: CatalogueSettings = Field(
        default_factory=CatalogueSettings,
        description="the catalogue in the bucket: topics, positions of partitions and groups, files of the nodes",
    )
    drill: DrillSettings = Field(
        default_factory=DrillSettings,
        description="drills: restores into a scratch directory, which prove that the tier comes back",
    )
    cost: CostSettings = Field(default_factory=CostSettings, description="prices of the tier")
    http: HttpSettings = Field(default_factory=HttpSettings, description="the HTTP port for status and metrics")
    kafka: KafkaEndpointSettings = Field(
        default_factory=KafkaEndpointSettings,
        description="the read endpoint: any Kafka client reads the tier; off without listeners",
    )
    push: PushReplicationSettings = Field(
        default_factory=PushReplicationSettings,
        description="push replication: records that are not in the tier yet are on another host; off without listen",
    )
    control: ControlSettings = Field(
        default_factory=ControlSettings,
        description="the control plane: daemons tell each other of their presence and of leaders over MQTT",
    )
    shutdown_timeout_s: Duration = Field(
        30.0, alias="shutdown_timeout", ge=0, description="time that running copies have to end after SIGTERM"
    )
    logging: LoggingSettings = Field(default_factory=LoggingSettings, description="the daemon's log")

    @property
    def hold_dir(self) -> Path:
        """Return the directory in which held segments are linked."""
        return self.hold.directory(self.state_dir)

    @property
    def cache_dir(self) -> Path:
        """Return the directory of fetched chunks and indexes."""
        return self.fetch.directory(self.state_dir)

    @property
    def pipeline_dir(self) -> Path:
        """Return the directory of the job's log and scratch files."""
        return self.pipeline.local_dir or self.state_dir / "pipeline"

    @property
    def drill_dir(self) -> Path:
        """Return the directory in which drills restore."""
        return self.drill.scratch_dir or self.state_dir / "drill"

    @model_validator(mode="after")
    def _brokers_can_be_asked(self) -> "TierdConfig":
        if self.leadership.kafka is None and (left := left_to_brokers(self.topics)):
            message = "from-broker needs the section leadership.kafka, with bootstrap_servers at least: add it"
            raise PlacedFaultsError(
                [(("topics", *location), f"{message}, or write what the tier keeps") for location in left]
            )
        return self

    @model_validator(mode="after")
    def _announcements_can_be_heard(self) -> "TierdConfig":
        if self.leadership.source == "mqtt" and not self.control.mqtt.is_enabled:
            message = "source mqtt needs the section control.mqtt, with address at least"
            raise PlacedFaultsError([(("leadership", "source"), message)])
        return self

    @model_validator(mode="after")
    def _endpoints_share_their_groups(self) -> "TierdConfig":
        if self.kafka.peers and self.metadata.backend == "sqlite":
            message = (
                "groups of several daemons need a metadata store that they share: set metadata.backend to postgres"
            )
            raise PlacedFaultsError([(("kafka", "peers"), f"{message} or redis")])
        return self

    @model_validator(mode="after")
    def _standby_keeps_apart(self) -> "TierdConfig":
        standby = self.push.standby.log_dir
        if standby is None:
            return self
        within = next((each.path for each in self.log_dirs if each.path.is_relative_to(standby)), None)
        if within is not None:
            message = f"{standby} holds the log dir {within}: choose a directory beside it"
            raise PlacedFaultsError([(("push", "standby", "log_dir"), message)])
        return self

    @model_validator(mode="after")
    def _endpoints_have_ids_of_their_own(self) -> "TierdConfig":
        if self.kafka.node_id is None and self.node_id is not None:
            faults = [
                (
                    ("kafka", "peers", index, "node_id"),
                    f"{peer.node_id} is the node_id of this daemon: each needs its own",
                )
                for index, peer in enumerate(self.kafka.peers)
                if peer.node_id == self.node_id
            ]
            if faults:
                raise PlacedFaultsError(faults)
        return self
