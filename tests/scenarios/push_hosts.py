"""Hosts with push replication: a tierd beside a broker, and standbys; as their configuration files describe them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.scenarios.installation import Installation, Settings
from tests.services.kafka_cluster import KafkaBroker
from tests.services.ports import free_port
from tierd.log import read_meta_properties


class PushHosts:
    """Addresses of the daemons, and their sections ``push``; node ids begin at 1."""

    def __init__(self, count: int = 2) -> None:
        self.addresses = {node: f"127.0.0.1:{free_port()}" for node in range(1, count + 1)}

    def leader(self, node: int = 1, *, topics: Sequence[str] = (".*",), **more: object) -> Settings:
        """Return the settings of a daemon that sends to all others."""
        section = {**self._section(node), "topics": list(topics), "standbys": self._others(node), **more}
        return {"push": section}

    def standby(self, root: Path, cluster_id: str, node: int = 2, **more: object) -> Settings:
        """Return the settings of a daemon on a host without a broker; its copies are below ``root``."""
        own = root / "own"
        own.mkdir(parents=True)
        return {
            "cluster_id": cluster_id,
            "node_id": node,
            "log_dirs": [{"path": str(own), "owner": "tierd"}],
            "push": {**self._section(node), "standby": {"log_dir": str(root / "copies")}, **more},
        }

    def _section(self, node: int) -> Settings:
        peers = [{"node_id": other, "address": self.addresses[other]} for other in self._others(node)]
        return {"node_id": node, "listen": self.addresses[node], "peers": peers}

    def _others(self, node: int) -> list[int]:
        return [other for other in self.addresses if other != node]


def cluster_id_of(broker: KafkaBroker) -> str:
    """Return the cluster id that the log dirs of a broker name."""
    properties = read_meta_properties(broker.log_dirs[0])
    assert properties is not None
    assert properties.cluster_id is not None
    return properties.cluster_id


def batches_in(directory: Path) -> dict[int, bytes]:
    """Return the batches of a partition directory by base offset."""
    return {offset: batch for file in sorted(directory.glob("*.log")) for offset, batch in _batches(file.read_bytes())}


def copies_of(installation: Installation) -> Path:
    """Return the log dir of a standby's copies."""
    return Path(installation.settings["push"]["standby"]["log_dir"])


def _batches(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while (size := int.from_bytes(data[at + 8 : at + 12], "big")) > 0:
        yield int.from_bytes(data[at : at + 8], "big"), data[at : at + size + 12]
        at += size + 12
