"""Probe of a scripted broker; real brokers are in tests/cli/test_check_config_kafka.py."""

import socket

import pytest

from tests.control.connecting import plaintext
from tests.fakes.kafka_broker import CLUSTER_ID, ScriptedBroker
from tests.services.ports import free_port
from tierd.control.broker_connections import bootstrap_addresses
from tierd.control.cluster_metadata import BrokerSoftware
from tierd.control.kafka_check import BrokerProbe, probe_broker, probe_controller, release_of
from tierd.errors import KafkaUnreachableError


async def probed(address: str, *, request_timeout_s: float = 5.0) -> BrokerProbe:
    settings = plaintext(address, request_timeout_s=request_timeout_s)
    return await probe_broker(bootstrap_addresses(settings)[0], settings)


async def test_probe_returns_cluster_and_brokers_and_leaves_no_connection() -> None:
    broker = ScriptedBroker(node_id=3)
    async with broker.listening() as address:
        probe = await probed(address)

    assert probe.cluster.cluster_id == CLUSTER_ID
    assert [each.node_id for each in probe.cluster.brokers] == [3]
    assert probe.security == "no TLS, no login"


async def test_probe_of_a_port_that_refuses_is_unreachable() -> None:
    with pytest.raises(KafkaUnreachableError, match="cannot connect"):
        await probed(f"127.0.0.1:{free_port()}")


async def test_probe_of_a_port_that_is_silent_ends_by_its_deadline() -> None:
    # The kernel accepts, and no process reads.
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(KafkaUnreachableError, match="no answer"):
        await probed(f"127.0.0.1:{silent.getsockname()[1]}", request_timeout_s=0.2)


async def test_missing_controller_is_an_error() -> None:
    broker = ScriptedBroker()
    async with broker.listening() as address:
        probe = await probed(address)
        with pytest.raises(KafkaUnreachableError, match="knows no controller"):
            await probe_controller(probe, plaintext(address))


@pytest.mark.parametrize(
    ("level", "release"),
    [
        (7, "Kafka 3.3"),
        (9, "Kafka 3.5"),
        (21, "Kafka 3.9"),
        (22, "Kafka 4.0"),
        (30, "Kafka 4.3"),
        (31, "a Kafka later than 4.3"),
        (None, "a Kafka that names no metadata.version, as with ZooKeeper"),
    ],
)
def test_release_of_a_broker_is_derived_from_its_highest_metadata_version(level: int | None, release: str) -> None:
    assert release_of(BrokerSoftware({}, level)) == release
