"""Clients that log in to the endpoint, by certificates and by passwords, and read what they may."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from tests.scenarios.golden_server import GoldenServer, golden_server
from tests.scenarios.oracle import assert_same_records
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.certificates import Authority, Certificate
from tests.services.kafka_clients.java_tools import JavaTools
from tests.services.kafka_clients.librdkafka import read_partitions
from tests.services.ports import free_port
from tests.services.waiting import wait_until

USER, PASSWORD = "etl", "a,b=c \N{SNOWMAN}"
ALLOWED, FORBIDDEN = "plain-zstd", "txn-closed"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = (("ssl", None), *(("sasl_ssl", mechanism) for mechanism in MECHANISMS), ("sasl_plaintext", "SCRAM-SHA-512"))


@dataclass(frozen=True, slots=True)
class GuardedServer:
    """Golden topics behind listeners of every protocol."""

    golden: GoldenServer
    addresses: Mapping[str, str]
    authority: Authority
    certificate: Certificate

    def settings(self, protocol: str, mechanism: str | None, *, password: str = PASSWORD) -> dict[str, str]:
        """Return the settings by which librdkafka connects to a listener."""
        found = {"security.protocol": protocol, "ssl.ca.location": str(self.authority.ca_file)}
        if mechanism is not None:
            return found | {"sasl.mechanisms": mechanism, "sasl.username": USER, "sasl.password": password}
        certificate = {
            "ssl.certificate.location": self.certificate.cert_file,
            "ssl.key.location": self.certificate.key_file,
        }
        return found | {name: str(file) for name, file in certificate.items()}


@pytest.fixture(scope="module")
def server(golden: Path, tmp_path_factory: pytest.TempPathFactory, warm_tierd: WarmTierd) -> Iterator[GuardedServer]:
    """Serve golden topics, of which each principal may read one."""
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder / "pki", "tierd")
    certificate = authority.issue("endpoint", hosts=("127.0.0.1",))
    addresses = {protocol: f"127.0.0.1:{free_port()}" for protocol in dict(WAYS)}
    kafka = {
        "listeners": [{"protocol": protocol, "listen": address} for protocol, address in addresses.items()],
        "tls": {
            "certificate_file": str(certificate.cert_file),
            "key_file": str(certificate.key_file),
            "client_ca_file": str(authority.ca_file),
            "client_certificates": "requested",
        },
        "sasl": {"mechanisms": list(MECHANISMS), "users": [{"name": USER, "password": PASSWORD}]},
        "access": [{"principals": [f"User:{USER}", "User:CN=client"], "topics": [ALLOWED], "groups": ["tierd-.*"]}],
    }
    source = golden / "kafka-4.3.1" / "clean"
    with golden_server(source / "logdir", source / "oracle", folder, warm_tierd, settings={"kafka": kafka}) as found:
        yield GuardedServer(found, addresses, authority, authority.issue("client"))


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_client_that_has_logged_in_reads_the_topics_of_its_principal(
    protocol: str, mechanism: str | None, server: GuardedServer
) -> None:
    settings = server.settings(protocol, mechanism)

    found = read_partitions(server.addresses[protocol], [(ALLOWED, 0)], committed=True, settings=settings)

    assert_same_records(found[ALLOWED, 0], server.golden.expected(ALLOWED, committed=True)[ALLOWED, 0], what=ALLOWED)


@pytest.mark.service("kafka")
def test_console_consumer_logs_in_with_its_settings_file(
    server: GuardedServer, tmp_path: Path, kafka_jars: Callable[[str], str]
) -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(server.authority.ca_file),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD.encode("ascii", "backslashreplace").decode()}";',
        "group.id": "tierd-console",
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    wanted = ("--topic", ALLOWED, "--from-beginning", "--max-messages", "100", "--timeout-ms", "30000")
    with JavaTools(kafka_jars("4.3.1"), tmp_path / "tools.log") as tools:
        result = tools.done(
            "kafka-console-consumer", server.addresses["sasl_ssl"], *wanted, "--command-config", str(file)
        )
    assert "Processed a total of 100 messages" in result.errors


def test_topic_of_other_principals_is_hidden_and_refused(server: GuardedServer) -> None:
    settings = server.settings("sasl_ssl", "SCRAM-SHA-512")
    admin = AdminClient({"bootstrap.servers": server.addresses["sasl_ssl"], **settings})

    assert set(admin.list_topics(timeout=20).topics) == {ALLOWED}
    refused = admin.list_topics(FORBIDDEN, timeout=20).topics[FORBIDDEN].error
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_wrong_password_is_reported_to_the_client(server: GuardedServer) -> None:
    reported: list[KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": server.addresses["sasl_ssl"],
        "error_cb": reported.append,
        "log_level": 0,
        **server.settings("sasl_ssl", "SCRAM-SHA-512", password="wrong"),
    }
    admin = AdminClient(settings)

    def is_reported() -> bool:
        admin.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in reported)

    wait_until(is_reported, what="the refusal", deadline_s=20, last_seen=lambda: reported)
