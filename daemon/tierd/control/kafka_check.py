"""Probe of one broker: its version, its cluster, the controller, and the way in which the broker was reached."""

from bisect import bisect_left
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from tierd import __version__
from tierd.config import KafkaConnectionSettings
from tierd.control.cluster_metadata import BrokerAddress, BrokerSoftware, ClusterMetadata
from tierd.control.kafka_connection import KafkaConnection
from tierd.control.kafka_messages import broker_software, metadata, quorum_leader, speaks_quorum
from tierd.errors import KafkaUnreachableError

_LAST_LEVELS: Final[Mapping[int, str]] = {
    1: "3.0",
    2: "3.1",
    3: "3.2",
    7: "3.3",
    8: "3.4",
    11: "3.5",
    14: "3.6",
    19: "3.7",
    20: "3.8",
    21: "3.9",
    25: "4.0",
    27: "4.1",
    29: "4.2",
    30: "4.3",
}
"""The highest ``metadata.version`` of each release (Kafka: MetadataVersion); a broker names its highest."""


@dataclass(frozen=True, slots=True)
class BrokerProbe:
    """Answer of one bootstrap server."""

    address: BrokerAddress
    security: str
    """How the connection came to be, for people: TLS and login."""
    software: BrokerSoftware
    cluster: ClusterMetadata


async def probe_broker(address: BrokerAddress, settings: KafkaConnectionSettings) -> BrokerProbe:
    """Connect to one broker as the daemon does, ask for its version and cluster, and close; nothing is changed there.

    Each wait ends by ``connect_timeout_s`` or ``request_timeout_s``. A cancellation leaves nothing open.

    Raises:
        KafkaError: the connection, its TLS or its login failed, or an answer cannot be understood.
    """
    with closing(await KafkaConnection.open(address, settings)) as connection:
        software = await connection.call(broker_software(version=__version__))
        cluster = await connection.call(metadata())
        return BrokerProbe(address, _security(connection, settings), software, cluster)


async def probe_controller(probe: BrokerProbe, settings: KafkaConnectionSettings) -> str:
    """Return a text that names the active controller, by the answer of the broker of ``probe``.

    Raises:
        KafkaError: there is none, or the broker cannot reach it.
    """
    if not speaks_quorum(probe.software.requests):
        return _controller_with_zookeeper(probe)
    with closing(await KafkaConnection.open(probe.address, settings)) as connection:
        leader = await connection.call(quorum_leader())
    if leader.error == "cluster_authorization_failed":
        return "not told without Describe on the cluster, a right that tierd needs for nothing else"
    if leader.node_id is None:
        raise KafkaUnreachableError(
            f"{probe.address}: the controllers have no leader: {leader.error or 'none is elected'}",
            remedy="look at the controllers' logs: without a leader nothing in the cluster can change",
        )
    return f"node {leader.node_id}, epoch {leader.epoch}"


def release_of(software: BrokerSoftware) -> str:
    """Name the release of Kafka that a broker runs, as far as its features show it."""
    level = software.metadata_version
    if level is None:
        return "a Kafka that names no metadata.version, as with ZooKeeper"
    levels = list(_LAST_LEVELS)
    at = bisect_left(levels, level)
    newest = _LAST_LEVELS[levels[-1]]
    return f"Kafka {_LAST_LEVELS[levels[at]]}" if at < len(levels) else f"a Kafka later than {newest}"


def _controller_with_zookeeper(probe: BrokerProbe) -> str:
    if probe.cluster.controller_id is None:
        raise KafkaUnreachableError(
            f"{probe.address}: the broker knows no controller",
            remedy="look at the brokers' logs: without a controller nothing in the cluster can change",
        )
    return f"broker {probe.cluster.controller_id}"


def _security(connection: KafkaConnection, settings: KafkaConnectionSettings) -> str:
    protocol = settings.security_protocol
    if connection.tls_version is None:
        tls = "no TLS"
    else:
        shown = ", our certificate shown" if settings.cert_file is not None else ""
        checked = "" if settings.verify_hostname else ", its host name not compared"
        tls = f"{connection.tls_version}, the certificate is trusted{checked}{shown}"
    if not protocol.startswith("sasl"):
        return f"{tls}, no login"
    return f"{tls}, logged in as {settings.sasl_username} by {settings.sasl_mechanism}"
