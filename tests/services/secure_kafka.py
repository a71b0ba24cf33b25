"""Real broker with a listener for every security protocol, an authorizer, and users of every kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.services.certificates import Authority, Certificate
from tests.services.kafka_cluster import KafkaBroker

LISTENERS = {"TLS": "SSL", "MTLS": "SSL", "LOGIN": "SASL_PLAINTEXT", "TLSLOGIN": "SASL_SSL"}
USER, PASSWORD = "tierd", "a,b=c \N{SNOWMAN}"
"""Has the rights that tierd needs, and a password that must be escaped nowhere."""
POWERLESS = "powerless"
_LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class SecureKafka:
    """Broker, authority of its certificates, and a certificate for clients."""

    broker: KafkaBroker
    authority: Authority
    client: Certificate
    elsewhere: Authority  # a user that the broker does not know


def secure_kafka(folder: Path, version: str) -> SecureKafka:
    """Describe the broker; it is not started. Make its users with ``add_users``."""
    authority = Authority(folder / "pki", "brokers")
    server = authority.issue("broker", hosts=("127.0.0.1",))
    broker = KafkaBroker(
        folder / "kafka",
        version=version,
        extra_listeners=LISTENERS,
        properties=_properties(server, authority),
    )
    client = authority.issue("client", password="of the key")
    return SecureKafka(broker, authority, client, Authority(folder / "pki", "elsewhere"))


def add_users(kafka: SecureKafka, topics: Sequence[str]) -> None:
    """Make the users, and grant ``USER`` on ``topics`` the rights that tierd needs."""
    for name in (USER, POWERLESS):
        kafka.broker.add_scram_user(name, PASSWORD)
    for topic in topics:
        kafka.broker.allow(USER, topic, ("DESCRIBE", "DESCRIBE_CONFIGS"))


def _properties(server: Certificate, authority: Authority) -> dict[str, str]:
    # Java reads properties as Latin-1.
    escaped = PASSWORD.encode("ascii", "backslashreplace").decode()
    plain = " ".join(f'user_{name}="{escaped}"' for name in (USER, POWERLESS))
    logins = {
        f"listener.name.{listener}.{key}": value
        for listener in ("login", "tlslogin")
        for key, value in {
            "plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {plain};",
            "scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
            "scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        }.items()
    }
    return logins | {
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.tlslogin.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.tlslogin.connections.max.reauth.ms": "2000",
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.bundle),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca_file),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:CN=client",
    }
