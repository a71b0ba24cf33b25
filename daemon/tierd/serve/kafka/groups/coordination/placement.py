"""Placement: the endpoint that coordinates a group, by rendezvous hash over the live endpoints.

When an endpoint comes or goes, only groups that it coordinates move. For a while two endpoints may see different live
ones. Both may then take themselves for the coordinator; the claim in the metadata store lets one of them write.
"""

import hashlib
from collections.abc import Iterable

from tierd.serve.kafka.served.served_cluster import EndpointNode, ServedCluster, ServedPartitions


def coordinator_of(group: str, node_ids: Iterable[int]) -> int:
    """Return the node id that coordinates a group; the same on every endpoint that sees the same ``node_ids``."""
    return max(node_ids, key=lambda node_id: (_weight(group, node_id), node_id))


def _weight(group: str, node_id: int) -> bytes:
    return hashlib.blake2b(f"{node_id}/{group}".encode(), digest_size=8).digest()


class Placement:
    """Places of groups as this endpoint sees them now.

    Args:
        served: knows the live endpoints.
        listener: the live endpoints of this listener decide, whichever one a client uses.
    """

    def __init__(self, served: ServedPartitions, *, listener: str) -> None:
        self._served = served
        self._listener = listener

    @property
    def node_id(self) -> int:
        """Return the node id of this endpoint."""
        return self._served.cluster(self._listener).node_id

    @property
    def is_alone(self) -> bool:
        """Return True if no other endpoint is live."""
        return len(self._served.cluster(self._listener).nodes) <= 1

    def is_here(self, group: str) -> bool:
        """Return True if this endpoint coordinates the group; False for every group before it listens."""
        cluster = self._served.cluster(self._listener)
        return bool(cluster.nodes) and _coordinator_in(cluster, group) == cluster.node_id

    def coordinator(self, group: str, listener: str) -> EndpointNode | None:
        """Return the endpoint that coordinates a group, at its address for ``listener``; None if it has none there."""
        node_id = _coordinator_in(self._served.cluster(self._listener), group)
        return next((node for node in self._served.cluster(listener).nodes if node.node_id == node_id), None)


def _coordinator_in(cluster: ServedCluster, group: str) -> int:
    return coordinator_of(group, (node.node_id for node in cluster.nodes))
