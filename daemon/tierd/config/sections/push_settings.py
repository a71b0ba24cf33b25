"""Push replication: the partitions that this host sends to standbys, and the copies that it keeps as a standby."""

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from tierd.config.places import Location, require_none
from tierd.config.section import Settings
from tierd.config.sections.endpoint_listener_settings import MAX_NODE_ID
from tierd.config.values import (
    MIB,
    AbsolutePath,
    Address,
    ByteSize,
    Duration,
    HostPort,
    OwnPath,
    Pattern,
    Ratio,
    Switch,
    WholeNumber,
    full_match,
    is_local_host,
    split_address,
)


class PushPeerSettings(Settings):
    """Another daemon of the cluster that takes part in push replication."""

    node_id: WholeNumber = Field(ge=0, le=MAX_NODE_ID, description="push.node_id of the daemon", examples=["2"])
    address: HostPort = Field(
        description="address of its push.listen, as this host reaches it", examples=["tierd-2.example.com:9406"]
    )

    @property
    def host(self) -> str:
        """Return the host part of ``address``, without brackets."""
        return split_address(self.address)[0]

    @property
    def port(self) -> int:
        """Return the port of ``address``."""
        return split_address(self.address)[1]


class PushTlsSettings(Settings):
    """Certificates of both directions. Each has the URI tierd://CLUSTER-ID/NODE-ID as a subject alternative name."""

    certificate_file: AbsolutePath | None = Field(
        None, description="PEM certificate of this daemon, with the certificates between it and its authority"
    )
    key_file: AbsolutePath | None = Field(None, description="PEM key of certificate_file")
    key_password: SecretStr | None = Field(None, description="password of key_file")
    key_password_file: AbsolutePath | None = Field(
        None, description="file with the password, in place of the key above"
    )
    ca_file: AbsolutePath | None = Field(None, description="PEM certificates of the authority of the daemons")
    min_version: Literal["TLSv1.2", "TLSv1.3"] = Field("TLSv1.3", description="lowest version of TLS")

    @model_validator(mode="after")
    def _files_belong_together(self) -> "PushTlsSettings":
        files = (self.certificate_file, self.key_file, self.ca_file)
        if any(files) and not all(files):
            message = "certificate_file, key_file and ca_file belong together: set all of them, or none"
            require_none([(("certificate_file",), message)])
        return self

    @property
    def is_configured(self) -> bool:
        """Return True if there are certificates."""
        return self.certificate_file is not None


class PushTailSettings(Settings):
    """Tail mode: the partitions of a broker, followed without touching its files."""

    interval_s: Duration = Field(
        0.01, alias="interval", ge=0.001, le=5, description="shortest time between two looks at one partition"
    )
    limit: Literal["log-end", "high-watermark"] = Field(
        "log-end",
        description="log-end: send records as the broker writes them, as a follower gets them; high-watermark: send "
        "what consumers may read",
    )


class PushBufferSettings(Settings):
    """Memory of records that are queued or on their way to standbys."""

    max_bytes: ByteSize = Field(200 * MIB, ge=2 * MIB, description="records of all sessions together")
    session_max_bytes: ByteSize = Field(32 * MIB, ge=MIB, description="records of one session")


class PushRequestSettings(Settings):
    """Requests to standbys."""

    max_bytes: ByteSize = Field(10 * MIB, ge=MIB, le=64 * MIB, description="records of one request")
    partition_max_bytes: ByteSize = Field(MIB, ge=64 * 1024, description="records of one partition in one request")
    linger_s: Duration = Field(0.0, alias="linger", ge=0, description="longest wait of records for more records")
    timeout_s: Duration = Field(10.0, alias="timeout", gt=0, description="longest wait for an answer")


class PushSessionSettings(Settings):
    """Sessions: the time in which the leader sends appends as they happen."""

    unacked_max_s: Duration = Field(
        15.0, alias="unacked_max", gt=0, description="longest time without progress; then the standby fetches again"
    )
    keepalive_s: Duration = Field(3.0, alias="keepalive", gt=0, description="longest silence of the leader")
    idle_max_s: Duration = Field(
        10.0, alias="idle_max", gt=0, description="silence after which the standby fetches again"
    )
    lag_max_s: Duration = Field(
        30.0, alias="lag_max", gt=0, description="a standby that lags for longer counts as out of sync"
    )
    transition_max_lag_bytes: ByteSize = Field(
        MIB, alias="transition_max_lag", ge=0, description="a standby that lacks more records fetches them first"
    )
    transition_memory_fraction: Ratio = Field(
        0.5, ge=0, le=1, description="part of buffer.max_bytes above which no session begins"
    )

    @model_validator(mode="after")
    def _times_fit(self) -> "PushSessionSettings":
        faults: list[tuple[Location, str]] = []
        if self.unacked_max_s > self.lag_max_s / 2:
            faults.append((("unacked_max",), "must be at most half of lag_max, so that time to fetch is left"))
        if self.idle_max_s <= 3 * self.keepalive_s:
            faults.append((("idle_max",), "must be more than three times keepalive"))
        require_none(faults)
        return self


class PushStandbySettings(Settings):
    """Copies of other daemons' partitions on this host. Off without a log dir."""

    log_dir: OwnPath | None = Field(
        None, description="directory of the copies, outside all log dirs: tierd makes and tends it"
    )
    leaders: tuple[WholeNumber, ...] = Field(
        (), description="node_id of the daemons whose partitions are kept; default: all peers"
    )
    flush: Literal["never", "interval", "always"] = Field(
        "never",
        description="never: as a follower of Kafka, the kernel writes to the disk; interval: every flush_interval; "
        "always: before the answer to the leader",
    )
    flush_interval_s: Duration = Field(1.0, alias="flush_interval", gt=0, description="time between two flushes")
    max_memory_bytes: ByteSize = Field(
        128 * MIB, alias="max_memory", ge=16 * MIB, description="records that wait for the disk at a time"
    )


class PushReplicationSettings(Settings):
    """Push replication: records that are not in the tier yet are on another host within milliseconds."""

    enabled: Switch = Field(True, description="false: send nothing, and fetch as a standby; it changes with a reload")
    node_id: WholeNumber | None = Field(
        None, ge=0, le=MAX_NODE_ID, description="id of this daemon, different for each; default: that of the broker"
    )
    listen: Address | None = Field(None, description="address for the other daemons, such as 0.0.0.0:9406; off without")
    peers: tuple[PushPeerSettings, ...] = Field((), description="the other daemons")
    tls: PushTlsSettings = Field(default_factory=PushTlsSettings, description="certificates of the daemons")
    allow_plaintext: Switch = Field(
        False, description="true: no TLS beyond the loopback interface, where others can read records and forge them"
    )
    topics: tuple[Pattern, ...] = Field((), description="topics that are sent: full-match regular expressions")
    standbys: tuple[WholeNumber, ...] = Field(
        (), description="node_id of the daemons that get them; each gets every partition that this host leads"
    )
    internal_topics: Switch = Field(False, description="true: also topics such as __consumer_offsets, if they match")
    tail: PushTailSettings = Field(default_factory=PushTailSettings, description="partitions of a broker")
    buffer: PushBufferSettings = Field(default_factory=PushBufferSettings, description="memory of the leader")
    request: PushRequestSettings = Field(default_factory=PushRequestSettings, description="requests of the leader")
    session: PushSessionSettings = Field(default_factory=PushSessionSettings, description="sessions of the leader")
    standby: PushStandbySettings = Field(default_factory=PushStandbySettings, description="copies on this host")

    @property
    def is_configured(self) -> bool:
        """Return True if this host takes part."""
        return self.listen is not None

    @property
    def is_leader(self) -> bool:
        """Return True if this host sends partitions."""
        return self.is_configured and bool(self.topics) and bool(self.standbys)

    @property
    def is_standby(self) -> bool:
        """Return True if this host keeps copies."""
        return self.is_configured and self.standby.log_dir is not None

    def wants(self, topic: str) -> bool:
        """Return True if the partitions of ``topic`` are sent."""
        is_internal = topic.startswith("__")
        return full_match(self.topics, topic) and (self.internal_topics or not is_internal)

    @model_validator(mode="after")
    def _peers_are_known(self) -> "PushReplicationSettings":
        faults: list[tuple[Location, str]] = []
        seen: set[int] = set() if self.node_id is None else {self.node_id}
        for index, peer in enumerate(self.peers):
            if peer.node_id in seen:
                message = f"{peer.node_id} is the node_id of another daemon: each needs its own"
                faults.append((("peers", index, "node_id"), message))
            seen.add(peer.node_id)
        known = {peer.node_id for peer in self.peers}
        named: list[tuple[Location, int]] = [(("standbys", index), node) for index, node in enumerate(self.standbys)]
        named += [(("standby", "leaders", index), node) for index, node in enumerate(self.standby.leaders)]
        faults += [(place, f"{node} is no peer: add it to push.peers") for place, node in named if node not in known]
        require_none(faults)
        return self

    @model_validator(mode="after")
    def _parts_belong_together(self) -> "PushReplicationSettings":
        needs_listen = {
            ("topics",): bool(self.topics),
            ("standby", "log_dir"): self.standby.log_dir is not None,
        }
        if self.listen is None:
            message = "needs push.listen, the address at which the other daemons connect"
            require_none((place, message) for place, is_set in needs_listen.items() if is_set)
        if self.topics and not self.standbys:
            require_none([(("topics",), "needs push.standbys, the daemons that get the topics")])
        if self.standbys and not self.topics:
            require_none([(("standbys",), "needs push.topics, such as [orders, payments.*]")])
        return self

    @model_validator(mode="after")
    def _sizes_fit(self) -> "PushReplicationSettings":
        if self.buffer.max_bytes < 2 * self.request.max_bytes:
            require_none([(("buffer", "max_bytes"), "must be at least twice push.request.max_bytes")])
        if self.buffer.session_max_bytes > self.buffer.max_bytes:
            require_none([(("buffer", "session_max_bytes"), "must be at most push.buffer.max_bytes")])
        if self.request.partition_max_bytes > self.request.max_bytes:
            require_none([(("request", "partition_max_bytes"), "must be at most push.request.max_bytes")])
        if self.request.linger_s >= self.session.keepalive_s:
            require_none([(("request", "linger"), "must be less than push.session.keepalive")])
        return self

    @model_validator(mode="after")
    def _links_are_encrypted(self) -> "PushReplicationSettings":
        if self.tls.is_configured or self.allow_plaintext:
            return self
        message = "without push.tls on another interface than loopback: set push.tls, or push.allow_plaintext"
        faults: list[tuple[Location, str]] = []
        if self.listen is not None and not is_local_host(split_address(self.listen)[0]):
            faults.append((("listen",), f"{self.listen} {message}"))
        faults += [
            (("peers", index, "address"), f"{peer.address} {message}")
            for index, peer in enumerate(self.peers)
            if not is_local_host(peer.host)
        ]
        require_none(faults)
        return self
