"""The read endpoint: Kafka's protocol, read-only, for any client."""

from collections.abc import Iterator, Sequence

from pydantic import Field, model_validator

from tierd.config.places import Location, PlacedFaultsError, require_none
from tierd.config.section import Settings
from tierd.config.sections.endpoint_listener_settings import MAX_NODE_ID, EndpointListenerSettings, EndpointPeerSettings
from tierd.config.sections.endpoint_login_settings import (
    EndpointAccessRule,
    EndpointQuotaRule,
    EndpointSaslSettings,
    EndpointTlsSettings,
)
from tierd.config.values import (
    MIB,
    ByteSize,
    Duration,
    Pattern,
    Switch,
    Text,
    WholeNumber,
    is_local_host,
    split_address,
)


class EndpointGroupsSettings(Settings):
    """Consumer groups of the read endpoint. Their commits are in the metadata store."""

    min_session_timeout_s: Duration = Field(
        6.0, alias="min_session_timeout", gt=0, description="shortest session timeout that a member may ask for"
    )
    max_session_timeout_s: Duration = Field(
        1800.0, alias="max_session_timeout", gt=0, description="longest session timeout that a member may ask for"
    )
    initial_rebalance_delay_s: Duration = Field(
        3.0,
        alias="initial_rebalance_delay",
        ge=0,
        description="time that a new group waits for more members before its first assignment",
    )
    max_size: WholeNumber = Field(1000, ge=1, le=100_000, description="largest number of members of a group")
    max_groups: WholeNumber = Field(
        10_000, ge=1, le=1_000_000, description="largest number of groups, with and without members; more are refused"
    )
    offsets_retention_s: Duration = Field(
        7 * 86400.0,
        alias="offsets_retention",
        ge=60,
        description="time that the commits of a group without members are kept",
    )

    @model_validator(mode="after")
    def _timeouts_are_a_range(self) -> "EndpointGroupsSettings":
        if self.max_session_timeout_s < self.min_session_timeout_s:
            message = "must not be less than min_session_timeout"
            raise PlacedFaultsError([(("max_session_timeout",), message)])
        return self


class EndpointQuarantineSettings(Settings):
    """Clients that are held back after a restore, until ``tierd endpoint release``."""

    listeners: tuple[Text, ...] = Field((), description="listeners whose clients are held back, by name")
    principals: tuple[Pattern, ...] = Field((), description="principals that are held back on every listener")


class KafkaEndpointSettings(Settings):
    """The read endpoint: any Kafka client reads the tier. It is off without listeners."""

    listeners: tuple[EndpointListenerSettings, ...] = Field((), description="addresses at which clients connect")
    allow_plaintext: Switch = Field(
        False,
        description="true: listeners without ssl may be on other interfaces than loopback, where records and passwords "
        "can be read on the way",
    )
    node_id: WholeNumber | None = Field(
        None,
        ge=0,
        le=MAX_NODE_ID,
        description="id of this endpoint, different for every daemon of the cluster; default: that of the broker",
    )
    rack: Text | None = Field(None, min_length=1, description="rack of this host, which clients may prefer")
    cluster_id: Text | None = Field(
        None, min_length=1, description="cluster id that clients are told; default: that of Kafka and -tierd"
    )
    peers: tuple[EndpointPeerSettings, ...] = Field(
        (), description="the other daemons that serve the same cluster; groups then need postgres or redis"
    )
    tls: EndpointTlsSettings = Field(
        default_factory=EndpointTlsSettings, description="certificates of the listeners ssl and sasl_ssl"
    )
    sasl: EndpointSaslSettings = Field(
        default_factory=EndpointSaslSettings, description="logins on the listeners sasl_plaintext and sasl_ssl"
    )
    access: tuple[EndpointAccessRule, ...] = Field(
        (),
        description="rules of access; without a rule, each client that is let in reads all topics and uses all groups",
    )
    quotas: tuple[EndpointQuotaRule, ...] = Field((), description="limits of single principals")
    max_connections: WholeNumber = Field(
        2000, ge=1, le=100_000, description="connections of all listeners together at a time"
    )
    max_connections_per_peer: WholeNumber = Field(
        1000, ge=1, le=100_000, description="connections of one client address at a time"
    )
    max_request_bytes: ByteSize = Field(
        4 * MIB, ge=64 * 1024, le=1024 * MIB, description="size of the largest request that is read"
    )
    max_memory_bytes: ByteSize = Field(
        256 * MIB, alias="max_memory", ge=16 * MIB, description="bytes of all requests and answers in memory at a time"
    )
    idle_timeout_s: Duration = Field(
        600.0, alias="idle_timeout", gt=0, description="time without a request after which a connection is closed"
    )
    groups: EndpointGroupsSettings = Field(default_factory=EndpointGroupsSettings, description="consumer groups")
    quarantine: EndpointQuarantineSettings = Field(
        default_factory=EndpointQuarantineSettings, description="clients that are held back after a restore"
    )

    @property
    def is_enabled(self) -> bool:
        """Return True if there is a listener."""
        return bool(self.listeners)

    def endpoint_cluster_id(self, of_kafka: str) -> str:
        """Return the cluster id that clients are told, for the cluster id of the brokers."""
        return self.cluster_id or f"{of_kafka}-tierd"

    @model_validator(mode="after")
    def _listeners_keep_apart(self) -> "KafkaEndpointSettings":
        require_none(_repeated("name", [each.name for each in self.listeners], "the name of two listeners: set name"))
        bound = ["" if each.port == 0 else each.listen for each in self.listeners]
        require_none(_repeated("listen", bound, "the address of two listeners: remove one"))
        return self

    @model_validator(mode="after")
    def _plain_listeners_stay_here(self) -> "KafkaEndpointSettings":
        message = (
            "{} without ssl on another interface than loopback: set protocol to ssl or sasl_ssl, or allow_plaintext"
        )
        require_none(
            (("listeners", index, "listen"), message.format(each.protocol))
            for index, each in enumerate(self.listeners)
            if not (each.is_tls or self.allow_plaintext or is_local_host(each.host))
        )
        return self

    @model_validator(mode="after")
    def _tls_has_its_certificate(self) -> "KafkaEndpointSettings":
        lacks = "needs kafka.tls with certificate_file and key_file"
        require_none(
            (("listeners", index, "protocol"), f"{each.protocol} {lacks}")
            for index, each in enumerate(self.listeners)
            if each.is_tls and self.tls.certificate_file is None
        )
        return self

    @model_validator(mode="after")
    def _logins_have_users(self) -> "KafkaEndpointSettings":
        require_none(
            (("listeners", index, "protocol"), f"{each.protocol} needs a user in kafka.sasl.users")
            for index, each in enumerate(self.listeners)
            if each.has_login and not self.sasl.users
        )
        return self

    @model_validator(mode="after")
    def _quarantine_names_listeners(self) -> "KafkaEndpointSettings":
        known = [each.name for each in self.listeners]
        require_none(
            (("quarantine", "listeners", index), f"no listener is named {name}: {_named(known)}")
            for index, name in enumerate(self.quarantine.listeners)
            if name not in known
        )
        return self

    @model_validator(mode="after")
    def _peers_have_ids_of_their_own(self) -> "KafkaEndpointSettings":
        seen = set() if self.node_id is None else {self.node_id}
        faults: list[tuple[Location, str]] = []
        for index, peer in enumerate(self.peers):
            if peer.node_id in seen:
                message = f"{peer.node_id} is the node_id of another endpoint: each daemon needs its own"
                faults.append((("peers", index, "node_id"), message))
            seen.add(peer.node_id)
        require_none(faults)
        return self

    @model_validator(mode="after")
    def _peers_have_every_listener(self) -> "KafkaEndpointSettings":
        require_none(
            fault for index, peer in enumerate(self.peers) for fault in self._faults_of(peer, ("peers", index))
        )
        return self

    @model_validator(mode="after")
    def _no_client_is_sent_to_loopback_of_another_host(self) -> "KafkaEndpointSettings":
        faults: list[tuple[Location, str]] = []
        for index, peer in enumerate(self.peers):
            key = "address" if peer.address else "listeners"
            for listener in self.listeners:
                told = peer.address or peer.listeners.get(listener.name)
                is_local = is_local_host(listener.advertised_address(0)[0])
                if told is not None and is_local_host(split_address(told)[0]) != is_local:
                    here, there = ("this host", "others") if is_local else ("other hosts", "their own host alone")
                    message = f"{told} is for clients of {there}, listener {listener.name} for clients of {here}"
                    faults.append((("peers", index, key), message))
        require_none(faults)
        return self

    def _faults_of(self, peer: EndpointPeerSettings, place: Location) -> Iterator[tuple[Location, str]]:
        known = {each.name for each in self.listeners}
        if not peer.listeners:
            if len(known) > 1:
                yield (
                    (*place, "address"),
                    "this endpoint has several listeners: set listeners, with the address of each",
                )
            return
        for name in sorted(peer.listeners.keys() - known):
            yield (*place, "listeners"), f"no listener of this endpoint is named {name}: {_named(sorted(known))}"
        for name in sorted(known - peer.listeners.keys()):
            yield (*place, "listeners"), f"has no address for the listener {name}"


def _named(listeners: Sequence[str]) -> str:
    return f"there are {', '.join(listeners)}" if listeners else "there is none"


def _repeated(key: str, values: Sequence[str], message: str) -> Iterator[tuple[Location, str]]:
    for index, value in enumerate(values):
        if value and value in values[:index]:
            yield ("listeners", index, key), f"{value} is {message}"
