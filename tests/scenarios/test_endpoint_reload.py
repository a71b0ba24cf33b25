"""Access to the endpoint of a running daemon: users, certificates and the quarantine change without a restart."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Daemon, Installation, Settings
from tests.services.certificates import Authority
from tests.services.kafka_clients.librdkafka import read_partitions
from tests.services.ports import free_port
from tests.services.waiting import wait_until

TOPIC = "orders"
RECORDS = 4


def users(*names: str) -> Settings:
    return {"mechanisms": ["SCRAM-SHA-256"], "users": [{"name": name, "password": f"of {name}"} for name in names]}


def login(name: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": f"of {name}",
    }


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", "authority")


@pytest.fixture
def tierd(tmp_path: Path, authority: Authority, make_installation: MakeInstallation) -> Installation:
    """Listeners for users, for certificates and for clients that are held back."""
    writer = LogDirWriter(tmp_path / "kafka")
    writer.add_partition(TOPIC).append([b"value %d" % number for number in range(RECORDS)])
    writer.write_checkpoints()
    issued = authority.issue("endpoint", hosts=("127.0.0.1",))
    protocols = {"LOGIN": "sasl_plaintext", "TLS": "ssl", "RESTORED": "plaintext"}
    kafka = {
        "listeners": [
            {"name": name, "protocol": protocol, "listen": f"127.0.0.1:{free_port()}"}
            for name, protocol in protocols.items()
        ],
        "tls": {"certificate_file": str(issued.cert_file), "key_file": str(issued.key_file)},
        "sasl": users("alice"),
        "quarantine": {"listeners": ["RESTORED"]},
    }
    return make_installation([writer.path], settings={"kafka": kafka})


@pytest.fixture
def daemon(tierd: Installation) -> Iterator[Daemon]:
    with tierd.daemon() as running:
        yield running


def address(tierd: Installation, listener: str) -> str:
    return next(str(each["listen"]) for each in tierd.settings["kafka"]["listeners"] if each["name"] == listener)


def topics(bootstrap: str, settings: dict[str, str]) -> set[str]:
    """Return the topics that a client sees."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, **settings})
    return set(client.list_topics(timeout=20).topics)


def is_refused(bootstrap: str, settings: dict[str, str]) -> bool:
    """Return True if the login of a client fails."""
    problems: list[KafkaError] = []
    client = AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 2, **settings, "error_cb": problems.append}  # type: ignore[dict-item]  # declared for values only
    )
    while not problems:
        client.poll(1.0)
    return problems[0].code() == KafkaError._AUTHENTICATION


def record_of(bootstrap: str, *, wait_s: float) -> object:
    """Return the first record that a client reads, None if there is none in ``wait_s``."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tierd", "log_level": 2})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        return consumer.poll(wait_s)
    finally:
        consumer.close()


def test_users_and_rules_of_a_reload_are_in_force_at_once(tierd: Installation, daemon: Daemon) -> None:
    bootstrap = address(tierd, "LOGIN")
    assert topics(bootstrap, login("alice")) == {TOPIC}
    assert is_refused(bootstrap, login("bob"))

    tierd.configure({"kafka": {"sasl": users("alice", "bob"), "access": [{"principals": ["User:alice"]}]}})
    daemon.reload()

    assert topics(bootstrap, login("bob")) == set()
    assert topics(bootstrap, login("alice")) == set()
    tierd.configure({"kafka": {"sasl": users("bob"), "access": [{"principals": ["User:bob"], "topics": [TOPIC]}]}})
    daemon.reload()

    assert topics(bootstrap, login("bob")) == {TOPIC}
    assert is_refused(bootstrap, login("alice"))


def test_new_certificate_is_shown_without_a_reload(tierd: Installation, daemon: Daemon, authority: Authority) -> None:
    host, _, port = address(tierd, "TLS").partition(":")
    before = ssl.get_server_certificate((host, int(port)), ca_certs=str(authority.ca_file))

    issued = authority.issue("endpoint", hosts=("127.0.0.1",))

    wait_until(
        lambda: ssl.get_server_certificate((host, int(port)), ca_certs=str(authority.ca_file)) != before,
        deadline_s=20,
        what="the new certificate",
    )
    assert ssl.get_server_certificate((host, int(port))).strip() == issued.cert_file.read_text().strip()
    assert daemon.is_ready()


def test_person_lets_clients_of_a_quarantined_listener_go(tierd: Installation, daemon: Daemon) -> None:
    bootstrap = address(tierd, "RESTORED")
    held = {"listeners": ["RESTORED"], "principals": []}
    assert topics(bootstrap, {}) == {TOPIC}
    assert record_of(bootstrap, wait_s=1.0) is None

    assert tierd.ask("endpoint", "release", "--json").json() == held
    assert len(read_partitions(bootstrap, [(TOPIC, 0)])[TOPIC, 0]) == RECORDS
    daemon.kill()
    daemon.start()
    daemon.wait_ready()
    assert len(read_partitions(bootstrap, [(TOPIC, 0)])[TOPIC, 0]) == RECORDS

    assert tierd.ask("endpoint", "hold", "--json").json() == held
