"""Real consumer groups for tests: commits of consumers and of transactions, and what Kafka's own tool says of them."""

from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_producer import CLIENT_DEADLINE_S

_GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

Offsets = Mapping[tuple[str, int], int]


class ConsumerGroups:
    """Consumer groups of a cluster, of which no member consumes."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit the next offsets of a group by topic and partition, as a consumer."""
        consumer = self._consumer(group)
        try:
            consumer.commit(offsets=_partitions(offsets), asynchronous=False)
        finally:
            consumer.close()

    def commit_in_transaction(self, group: str, offsets: Offsets, *, commit: bool) -> None:
        """Commit the next offsets of a group as a part of a transaction, which is committed or aborted."""
        consumer = self._consumer(group)
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "transactional.id": f"of {group}"})
        try:
            producer.init_transactions(CLIENT_DEADLINE_S)
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                _partitions(offsets), consumer.consumer_group_metadata(), CLIENT_DEADLINE_S
            )
            end = producer.commit_transaction if commit else producer.abort_transaction
            end(CLIENT_DEADLINE_S)
        finally:
            consumer.close()

    def delete(self, group: str) -> None:
        """Delete a group with its offsets."""
        self._cluster.run_tool(_GROUPS_TOOL, "--delete", "--group", group)

    def described(self) -> dict[tuple[str, str, int], tuple[int, int]]:
        """Return committed offset and lag by group, topic and partition, from ``kafka-consumer-groups``."""
        output = self._cluster.run_tool(_GROUPS_TOOL, "--describe", "--all-groups", "--offsets")
        rows = [line.split() for line in output.splitlines()]
        return {
            (row[0], row[1], int(row[2])): (int(row[3]), int(row[5]))
            for row in rows
            if len(row) > 5 and row[0] != "GROUP" and row[3].isdigit()
        }

    def _consumer(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": group, "enable.auto.commit": False})


def _partitions(offsets: Offsets) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
