"""Which logs must not be in a log dir any more, and are set aside (Kafka: LogManager.isStrayKraftReplica)."""

from collections.abc import Callable, Collection
from uuid import UUID

from tierd.log.partition.unified_log import UnifiedLog

Replicas = Callable[[UUID, int], Collection[int] | None]
"""The nodes that hold a partition of a topic; None when the cluster knows no such topic id or partition."""


def lacks_topic_id(each: UnifiedLog) -> bool:
    """Whether the log has no topic id, so that nobody can tell whose it is: the part that needs no cluster."""
    return each.topic_id is None


def is_stray(each: UnifiedLog, *, node_id: int, replicas: Replicas) -> bool:
    """Whether the cluster's metadata puts no such replica on this node."""
    if each.topic_id is None:
        return True
    nodes = replicas(each.topic_id, each.topic_partition.partition)
    return nodes is None or node_id not in nodes
