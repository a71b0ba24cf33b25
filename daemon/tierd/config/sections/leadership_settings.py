"""Source of leadership: how tierd learns which partitions this broker leads."""

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from tierd.config.places import PlacedFaultsError
from tierd.config.section import Settings
from tierd.config.values import AbsolutePath, Duration, HostPort, Pattern, Switch, Text


class KafkaConnectionSettings(Settings):
    """Connection to the cluster for leaders and topic settings."""

    bootstrap_servers: tuple[HostPort, ...] = Field(
        min_length=1, description="first brokers to ask, each as host:port", examples=['["127.0.0.1:9092"]']
    )
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        "plaintext", description="security protocol of the brokers' listener"
    )
    ca_file: AbsolutePath | None = Field(
        None, description="PEM certificates that tierd trusts; default: those of the system"
    )
    cert_file: AbsolutePath | None = Field(None, description="PEM certificate of tierd, for mutual TLS")
    key_file: AbsolutePath | None = Field(None, description="PEM key of cert_file")
    key_password: SecretStr | None = Field(None, description="password of key_file")
    key_password_file: AbsolutePath | None = Field(
        None, description="file with the password, in place of the key above"
    )
    verify_hostname: Switch = Field(True, description="false: tierd accepts a certificate of another host name")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="mechanism of the login"
    )
    sasl_username: Text | None = Field(
        None,
        description="user; needs Describe and DescribeConfigs on tiered topics, and Describe on __consumer_offsets",
    )
    sasl_password: SecretStr | None = Field(None, description="password of the user")
    sasl_password_file: AbsolutePath | None = Field(
        None, description="file with the password, in place of the key above"
    )
    refresh_s: Duration = Field(5.0, alias="refresh", gt=0, description="time between two requests for the leaders")
    request_timeout_s: Duration = Field(10.0, alias="request_timeout", gt=0, description="longest wait for an answer")
    connect_timeout_s: Duration = Field(
        5.0, alias="connect_timeout", gt=0, description="longest wait for a connection, with its TLS and login"
    )

    @model_validator(mode="after")
    def _login_is_whole(self) -> "KafkaConnectionSettings":
        faults = []
        if self.security_protocol.startswith("sasl"):
            missing = [name for name in ("sasl_username", "sasl_password") if getattr(self, name) is None]
            faults += [((name,), f"security_protocol {self.security_protocol} needs {name}") for name in missing]
        if faults:
            raise PlacedFaultsError(faults)
        return self

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> "KafkaConnectionSettings":
        if (self.cert_file is None) != (self.key_file is None):
            message = "cert_file and key_file belong together: set both, or neither"
            raise PlacedFaultsError([(("cert_file",), message)])
        return self


class LeadershipSettings(Settings):
    """Source of leadership: how tierd learns which partitions this broker leads."""

    source: Literal["static", "kafka", "mqtt"] = Field(
        "static",
        description="static: this broker leads the replicas in partitions, at their latest local leader epoch; "
        "kafka: tierd asks the cluster; mqtt: announcements over control.mqtt",
    )
    partitions: tuple[Pattern, ...] = Field(
        (".*",),
        description="for static: partitions that this broker leads, full-match expressions over topic-partition",
    )
    kafka: KafkaConnectionSettings | None = Field(
        None, description="connection to the cluster, for source kafka and for from-broker"
    )

    @model_validator(mode="after")
    def _kafka_has_its_section(self) -> "LeadershipSettings":
        if self.source == "kafka" and self.kafka is None:
            message = "source kafka needs the section leadership.kafka, with bootstrap_servers at least"
            raise PlacedFaultsError([(("source",), message)])
        return self
