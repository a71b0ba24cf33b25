"""Stray logs: they must not be in a log dir any more and are set aside (Kafka: LogManager.isStrayKraftReplica)."""

from collections.abc import Callable, Collection
from uuid import UUID

from tierd.log.partition.unified_log import UnifiedLog

Replicas = Callable[[UUID, int], Collection[int] | None]
"""The nodes that hold a partition of a topic; None when the cluster knows no such topic id or partition."""


def lacks_topic_id(each: UnifiedLog) -> bool:
    """Return True if the log has no topic id, so that its topic is unknown; needs no cluster metadata."""
    return each.topic_id is None


def is_stray(each: UnifiedLog, *, node_id: int, replicas: Replicas) -> bool:
    """Return True if the log has no topic id, or the cluster's metadata places no such replica on this node."""
    if each.topic_id is None:
        return True
    nodes = replicas(each.topic_id, each.topic_partition.partition)
    return nodes is None or node_id not in nodes
