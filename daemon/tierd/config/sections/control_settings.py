"""Control plane over MQTT: daemons of a cluster tell each other of their presence and of leaders."""

from typing import Final, Literal

from pydantic import Field, SecretStr, model_validator

from tierd.config.places import Location, require_none
from tierd.config.section import Settings
from tierd.config.values import (
    AbsolutePath,
    Duration,
    HostPort,
    Switch,
    Text,
    WholeNumber,
    is_local_host,
    split_address,
)

PeerVerb = Literal["status", "describe", "pause", "resume", "sync", "session.list", "session.end", "truncate.preview"]
ALL_VERBS: Final[tuple[PeerVerb, ...]] = (
    "status",
    "describe",
    "pause",
    "resume",
    "sync",
    "session.list",
    "session.end",
    "truncate.preview",
)


class MqttTlsSettings(Settings):
    """TLS towards the MQTT broker; on with ca_file."""

    ca_file: AbsolutePath | None = Field(None, description="PEM certificates of the authority of the MQTT broker")
    certificate_file: AbsolutePath | None = Field(
        None, description="PEM certificate of this daemon, which names it to the MQTT broker"
    )
    key_file: AbsolutePath | None = Field(None, description="PEM key of certificate_file")
    key_password: SecretStr | None = Field(None, description="password of key_file")
    key_password_file: AbsolutePath | None = Field(
        None, description="file with the password, in place of the key above"
    )

    @property
    def is_configured(self) -> bool:
        """Return True if the connection is encrypted."""
        return self.ca_file is not None

    @model_validator(mode="after")
    def _files_belong_together(self) -> "MqttTlsSettings":
        faults: list[tuple[Location, str]] = []
        if (self.certificate_file is None) != (self.key_file is None):
            message = "certificate_file and key_file belong together: set both, or neither"
            faults.append((("certificate_file",), message))
        if self.certificate_file is not None and self.ca_file is None:
            faults.append((("ca_file",), "needed beside certificate_file: the authority of the MQTT broker"))
        require_none(faults)
        return self


class MqttSettings(Settings):
    """Connection to an MQTT broker, version 5 of the protocol. Off without an address."""

    address: HostPort | None = Field(
        None, description="address of the MQTT broker as host:port; off without", examples=["127.0.0.1:1883"]
    )
    tls: MqttTlsSettings = Field(default_factory=MqttTlsSettings, description="TLS towards the MQTT broker")
    allow_plaintext: Switch = Field(
        False, description="true: no TLS to an MQTT broker on another host, where others can read and forge messages"
    )
    username: Text | None = Field(None, description="user, where the certificate does not name the daemon")
    password: SecretStr | None = Field(None, description="password of the user")
    password_file: AbsolutePath | None = Field(None, description="file with the password, in place of the key above")
    endpoint: HostPort | None = Field(
        None,
        description="address of push.listen as other hosts reach it, for the daemons that learn it over MQTT",
        examples=["tierd-1.example.com:9406"],
    )
    announce_leaders: Switch = Field(
        True, description="true: announce the partitions that this daemon leads; needs the right to write part/#"
    )
    requests: tuple[PeerVerb, ...] = Field(
        ALL_VERBS, description="requests of other daemons that are answered; none of the verbs deletes anything"
    )
    keepalive_s: Duration = Field(
        10.0, alias="keepalive", ge=1, le=600, description="longest silence towards the MQTT broker"
    )
    session_expiry_s: Duration = Field(
        300.0, alias="session_expiry", ge=1, description="time for which the MQTT broker keeps messages for this daemon"
    )
    will_delay_s: Duration = Field(
        5.0, alias="will_delay", ge=0, description="time after a lost connection until the daemon counts as offline"
    )
    connect_timeout_s: Duration = Field(
        10.0, alias="connect_timeout", gt=0, description="longest wait for an answer of the MQTT broker"
    )
    request_timeout_s: Duration = Field(
        5.0, alias="request_timeout", gt=0, le=20, description="longest wait for the answer of another daemon"
    )
    publish_rate: WholeNumber = Field(
        200, ge=2, le=1000, description="number of messages a second that are sent to the MQTT broker at most"
    )

    @property
    def is_enabled(self) -> bool:
        """Return True if there is an MQTT broker."""
        return self.address is not None

    @model_validator(mode="after")
    def _login_is_whole(self) -> "MqttSettings":
        if self.password is not None and self.username is None:
            require_none([(("password",), "needs control.mqtt.username")])
        return self

    @model_validator(mode="after")
    def _connection_is_encrypted(self) -> "MqttSettings":
        if self.address is None or self.tls.is_configured or self.allow_plaintext:
            return self
        if not is_local_host(split_address(self.address)[0]):
            message = f"{self.address} without TLS on another host: set control.mqtt.tls.ca_file"
            require_none([(("address",), f"{message}, or control.mqtt.allow_plaintext")])
        return self


class ControlSettings(Settings):
    """The control plane: presence, announcements and requests; it is never authority, and nothing stops without it."""

    mqtt: MqttSettings = Field(
        default_factory=MqttSettings, description="connection to an MQTT broker; off without address"
    )
