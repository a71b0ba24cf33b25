"""The cluster as every answer shows it: endpoints in the place of brokers, each partition with one replica."""

from dataclasses import dataclass
from typing import Final, Self

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from tierd.model import is_topic_name
from tierd.serve.kafka.served.served_cluster import ServedCluster, ServedPartition

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics of the brokers themselves (Kafka: Topic.isInternal)."""
_NOBODY: Final = BrokerId(-1)


@dataclass(frozen=True, slots=True)
class ShownPartition:
    """One partition, whose only replica is the endpoint that clients are sent to."""

    error_code: ErrorCode
    index: i32
    leader_id: BrokerId
    leader_epoch: i32
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]

    @classmethod
    def of(cls, partition: ServedPartition, live: frozenset[int]) -> Self:
        """Return the partition as clients see it; it has no leader while its endpoint is not among the live ones."""
        leads = partition.leader_id in live
        replicas = (BrokerId(partition.leader_id),)
        return cls(
            error_code=ErrorCode.none if leads else ErrorCode.leader_not_available,
            index=i32(partition.partition.partition),
            leader_id=replicas[0] if leads else _NOBODY,
            leader_epoch=i32(partition.leader_epoch),
            replicas=replicas,
            in_sync=replicas if leads else (),
            offline=() if leads else replicas,
        )


def live_ids(cluster: ServedCluster) -> frozenset[int]:
    """Return the node ids of the live endpoints."""
    return frozenset(each.node_id for each in cluster.nodes)


def controller_of(cluster: ServedCluster) -> BrokerId:
    """Return the endpoint that is shown as the controller: this one, which the client has reached."""
    return BrokerId(cluster.node_id) if cluster.node_id in live_ids(cluster) else _NOBODY


def error_of_absent_topic(name: str) -> ErrorCode:
    """Return the code for a topic that is not there."""
    return ErrorCode.unknown_topic_or_partition if is_topic_name(name) else ErrorCode.invalid_topic_exception
