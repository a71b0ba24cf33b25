"""FakeServedPartitions: topics and their logs in memory, as an endpoint serves them."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tests.fakes.served_log import FakeServedLog
from tierd.model import TopicIdPartition
from tierd.serve.kafka.served.served_cluster import EndpointNode, ServedCluster, ServedPartition, ServedTopic

FIRST_NODE = EndpointNode(1, "one.example", 9092, "rack-a")
SECOND_NODE = EndpointNode(2, "two.example", 9092)
CLUSTER_ID = "cluster-tierd"


class FakeServedPartitions:
    """A ``ServedPartitions`` of a test; its cluster is the same for every listener.

    Attributes:
        listeners: names of the listeners that were asked for, in order.
    """

    def __init__(self, nodes: Sequence[EndpointNode] = (FIRST_NODE, SECOND_NODE)) -> None:
        self._cluster = ServedCluster(CLUSTER_ID, tuple(nodes), nodes[0].node_id, {})
        self._logs: dict[TopicIdPartition, FakeServedLog] = {}
        self.listeners: list[str] = []

    def add_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        topic_id: UUID | None = None,
        leader_epoch: int = 0,
        settings: dict[str, str] | None = None,
    ) -> list[FakeServedLog]:
        """Add a topic, whose leaders are the nodes in turn; return its empty logs by partition."""
        topic_id = topic_id or UUID(int=len(self._cluster.topics) + 1)
        nodes = self._cluster.nodes
        served = tuple(
            ServedPartition(TopicIdPartition(topic_id, name, at), nodes[at % len(nodes)].node_id, leader_epoch)
            for at in range(partitions)
        )
        self.put_topic(ServedTopic(name, topic_id, served, settings or {}))
        logs = [FakeServedLog() for _ in served]
        self._logs.update(zip((each.partition for each in served), logs, strict=True))
        return logs

    def put_topic(self, topic: ServedTopic) -> None:
        """Add or replace a topic; logs stay as they are."""
        self._cluster = replace(self._cluster, topics={**self._cluster.topics, topic.name: topic})

    def remove_topic(self, name: str) -> None:
        """Delete a topic with its logs."""
        topics = dict(self._cluster.topics)
        for each in topics.pop(name).partitions:
            self._logs.pop(each.partition, None)
        self._cluster = replace(self._cluster, topics=topics)

    def lead(self, name: str, *, leader_epoch: int, leader_id: int | None = None) -> None:
        """Elect a leader for all partitions of a topic."""
        topic = self._cluster.topics[name]
        led = tuple(
            replace(each, leader_epoch=leader_epoch, leader_id=each.leader_id if leader_id is None else leader_id)
            for each in topic.partitions
        )
        self.put_topic(replace(topic, partitions=led))

    def set_nodes(self, *nodes: EndpointNode) -> None:
        """Replace the live endpoints."""
        self._cluster = replace(self._cluster, nodes=nodes)

    def forget_log(self, name: str, partition: int = 0) -> None:
        """Lose the log of a partition, which the cluster still has."""
        del self._logs[self._partition(name, partition)]

    def put_log(self, name: str, partition: int, log: FakeServedLog) -> None:
        """Replace the log of a partition."""
        self._logs[self._partition(name, partition)] = log

    def fake_log(self, name: str, partition: int = 0) -> FakeServedLog:
        """Return the log of a partition as the test sees it."""
        return self._logs[self._partition(name, partition)]

    def cluster(self, listener: str) -> ServedCluster:
        self.listeners.append(listener)
        return self._cluster

    def log(self, partition: TopicIdPartition) -> FakeServedLog | None:
        return self._logs.get(partition)

    def _partition(self, name: str, partition: int) -> TopicIdPartition:
        return self._cluster.topics[name].partitions[partition].partition
