"""Alerts about the read endpoint and the connection to Kafka: each fires on a real Prometheus for a real daemon."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fakes.log_dirs import write_log_dir
from tests.scenarios.golden_server import endpoint_settings
from tests.scenarios.installation import Installation
from tests.scenarios.watched_daemons import WatchedDaemons
from tests.services.kafka_clients.librdkafka import read_partitions, waiting_consumers
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import SentRecord
from tests.services.ports import free_port

pytestmark = pytest.mark.service("prometheus")

CONNECTIONS = 25
_HANDSHAKE, _AUTHENTICATE = 17, 36


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, watched: WatchedDaemons, port: int) -> Iterator[Installation]:
    """Run a daemon whose endpoint wants a login, and has few connections."""
    log_dir = write_log_dir(tmp_path_factory.mktemp("endpoint") / "kafka", partitions=1, rolled_segments=1)
    kafka = {
        "listeners": [{"protocol": "sasl_plaintext", "listen": f"127.0.0.1:{port}"}],
        "sasl": {"mechanisms": ["PLAIN"], "users": [{"name": "etl", "password": "right-password"}]},
        "max_connections": CONNECTIONS,
    }
    tierd = watched.install("guarded", [log_dir.path], {"kafka": kafka})
    with tierd.daemon():
        yield tierd


def test_many_failed_logins_fire(guarded: Installation, watched: WatchedDaemons, port: int) -> None:
    watched.require_silent("TierdEndpointLoginsFail", guarded)
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            fail_login(opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)))
        watched.require_firing("TierdEndpointLoginsFail", guarded)


def fail_login(connection: socket.socket) -> None:
    """Send a wrong password; the answer comes after a wait of seconds."""
    connection.sendall(_frame(_HANDSHAKE, 1, b"\0\5PLAIN"))
    assert connection.recv(4096)
    wrong = b"\0etl\0wrong-password"
    connection.sendall(_frame(_AUTHENTICATE, 0, len(wrong).to_bytes(4, "big") + wrong))


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    """Return a request with correlation id 0 and no client id."""
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def test_more_waiting_consumers_than_connections_fire(
    tmp_path_factory: pytest.TempPathFactory, watched: WatchedDaemons
) -> None:
    log_dir, port = (
        write_log_dir(tmp_path_factory.mktemp("full") / "kafka", partitions=1, rolled_segments=1),
        free_port(),
    )
    settings = endpoint_settings(port)
    settings["kafka"]["max_connections"] = 2
    tierd = watched.install("full", [log_dir.path], settings)
    with tierd.daemon():
        watched.require_silent("TierdEndpointIsFull", tierd)
        with waiting_consumers(f"127.0.0.1:{port}", "synthetic", count=6):
            watched.require_firing("TierdEndpointIsFull", tierd)


@pytest.fixture(scope="module")
def beside_frozen_broker(
    tmp_path_factory: pytest.TempPathFactory, watched: WatchedDaemons, shared_kafka: MakeCluster
) -> Iterator[Installation]:
    """Run a daemon whose broker has answered, and answers no more."""
    broker = shared_kafka(nodes=1, version="4.3.1")
    broker.create_topic("orders")
    with broker.producer() as producer:
        producer.send("orders", 0, [SentRecord(key=None, value=b"value", timestamp_ms=1_700_000_000_000)])
    own_port = free_port()
    servers = {"bootstrap_servers": [broker.address(1)], "refresh": "1s", "request_timeout": "2s"}
    tierd = watched.install(
        "beside-broker",
        broker.log_dirs_of(1),
        {"leadership": {"source": "kafka", "kafka": servers}, **endpoint_settings(own_port)},
    )
    with tierd.daemon() as daemon:
        read_partitions(f"127.0.0.1:{own_port}", [("orders", 0)])
        daemon.wait_until(
            lambda: "tierd_endpoint_watermark_age_seconds" in daemon.metrics(), what="watermarks", deadline_s=20
        )
        watched.require_silent("TierdHearsNoLeaders", tierd)
        watched.require_silent("TierdEndpointIsBehind", tierd)
        broker.freeze(1)
        yield tierd
        broker.thaw(1)


@pytest.mark.service("kafka")
def test_leaders_that_are_not_heard_of_fire(beside_frozen_broker: Installation, watched: WatchedDaemons) -> None:
    watched.require_firing("TierdHearsNoLeaders", beside_frozen_broker)


@pytest.mark.service("kafka")
def test_old_high_watermarks_fire(beside_frozen_broker: Installation, watched: WatchedDaemons) -> None:
    watched.require_firing("TierdEndpointIsBehind", beside_frozen_broker)
