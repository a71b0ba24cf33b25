"""Steps of stories with a real broker: rolled segments, reads of a consumer, retention of the broker."""

from collections.abc import Iterable, Sequence

from tests.scenarios.installation import Installation
from tests.scenarios.oracle import Record, assert_same_records
from tests.scenarios.traffic import TopicPlan
from tests.services.kafka_cluster import KafkaBroker
from tests.services.waiting import wait_until

RETENTION_DEADLINE_S = 60.0
Oracle = dict[str, tuple[Sequence[Record], Sequence[Record]]]


def rolled_through(broker: KafkaBroker, topics: Iterable[TopicPlan]) -> dict[str, int]:
    """Return the last offset of the newest rolled segment of every partition."""
    return {
        f"{topic.name}-{partition}": broker.base_offsets(topic.name, partition)[-1] - 1
        for topic in topics
        for partition in range(topic.partitions)
    }


def consume_all(broker: KafkaBroker, topics: Iterable[TopicPlan]) -> Oracle:
    """Return the records that a real consumer reads of every partition: all, and committed ones."""
    partitions = [(topic.name, partition) for topic in topics for partition in range(topic.partitions)]
    everything = broker.consume_all(partitions)
    committed = broker.consume_all(partitions, committed=True)
    return {f"{topic}-{p}": (everything[topic, p], committed[topic, p]) for topic, p in partitions}


def let_retention_delete(broker: KafkaBroker, topics: Iterable[TopicPlan]) -> None:
    """Lower retention until the broker has only active segments, and has deleted the files of the others."""
    chosen = list(topics)
    for topic in chosen:
        broker.alter_topic(topic.name, {"retention.bytes": "1"})

    def only_active_segments() -> bool:
        directories = [broker.partition_dir(topic.name, p) for topic in chosen for p in range(topic.partitions)]
        return all(
            d is not None and len(list(d.glob("*.log"))) == 1 and not list(d.glob("*.deleted")) for d in directories
        )

    wait_until(only_active_segments, what="the broker's retention", deadline_s=RETENTION_DEADLINE_S)


def assert_reads_back(tierd: Installation, oracle: Oracle) -> None:
    """Fail unless ``tierd cat`` reads the records of the consumer, in both isolation levels."""
    for partition, (everything, committed) in oracle.items():
        assert_same_records(tierd.cat(partition), everything, what=partition)
        assert_same_records(tierd.cat(partition, "--committed"), committed, what=f"{partition} --committed")
