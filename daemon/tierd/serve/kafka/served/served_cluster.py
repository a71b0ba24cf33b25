"""ServedCluster: the cluster that the endpoint shows to its clients, as immutable values."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol
from uuid import UUID

from tierd.model import TopicIdPartition
from tierd.serve.kafka.served.served_log import ServedLog


@dataclass(frozen=True, slots=True)
class EndpointNode:
    """One daemon that serves clients, under the address that it advertises for one listener.

    Attributes:
        node_id: of the endpoint, configured; no two daemons of a cluster have the same.
        rack: of the host; None where it is not configured.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ServedPartition:
    """One partition as clients see it.

    Attributes:
        leader_id: node id of the endpoint that clients are sent to: the daemon beside the leader where that is known.
        leader_epoch: of the partition. An answer never names a lower epoch than an earlier one, of any daemon.
    """

    partition: TopicIdPartition
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ServedTopic:
    """One topic with its partitions, ascending by number.

    Attributes:
        settings: settings of the topic as they are known, under Kafka's names; empty where none is known.
    """

    name: str
    topic_id: UUID
    partitions: tuple[ServedPartition, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    def partition(self, number: int) -> ServedPartition | None:
        """Return the partition with a number; None where there is none."""
        at = bisect_left(self.partitions, number, key=_number)
        found = self.partitions[at] if at < len(self.partitions) else None
        return found if found is not None and _number(found) == number else None


@dataclass(frozen=True)
class ServedCluster:
    """The cluster at one moment, for the clients of one listener.

    Attributes:
        cluster_id: as clients are told: never that of the brokers, so that no client takes both clusters for one.
        nodes: the live endpoints, this one included, ascending by node id.
        node_id: of this endpoint.
        topics: by name.
    """

    cluster_id: str
    nodes: tuple[EndpointNode, ...]
    node_id: int
    topics: Mapping[str, ServedTopic]

    @cached_property
    def topics_by_id(self) -> Mapping[UUID, ServedTopic]:
        """Return the topics by topic id."""
        return {topic.topic_id: topic for topic in self.topics.values()}

    @cached_property
    def partition_count(self) -> int:
        """Return the number of partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.topics.values())


def _number(partition: ServedPartition) -> int:
    return partition.partition.partition


class ServedPartitions(Protocol):
    """Everything that one endpoint serves. Calls return at once, and are made on the event loop."""

    def cluster(self, listener: str) -> ServedCluster:
        """Return the cluster as the clients of ``listener`` see it now. The same object while nothing has changed."""

    def log(self, partition: TopicIdPartition) -> ServedLog | None:
        """Return the log of a partition; None where neither a log dir of this host nor the tier has it."""
