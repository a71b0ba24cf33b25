"""The client librdkafka through confluent-kafka, which reads partitions from their start to their end."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.services.kafka_clients.partitions import Counts, Records
from tests.services.kafka_producer import CLIENT_DEADLINE_S
from tests.services.kafka_records import ConsumedRecord, consumed
from tests.services.waiting import StillWaitingError, wait_until

_NO_COORDINATOR_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def read(bootstrap: str, wanted: Counts, *, committed: bool) -> Records:
    """Read partitions to their ends, with the signature that all clients have."""
    found = read_partitions(bootstrap, wanted, committed=committed)
    return {partition: [dict(record) for record in records] for partition, records in found.items()}


def read_partitions(
    bootstrap: str,
    partitions: Iterable[tuple[str, int]],
    *,
    committed: bool = False,
    settings: Mapping[str, str] | None = None,
) -> dict[tuple[str, int], list[ConsumedRecord]]:
    """Return the records that the client gets of each partition; with ``committed``, to the last stable offset.

    ``settings`` are further ones of the client.
    """
    chosen = list(partitions)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tierd-oracle",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
            **(settings or {}),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in chosen])
        return _read_to_end(consumer, chosen)
    finally:
        consumer.close()


@contextmanager
def waiting_consumers(bootstrap: str, topic: str, *, count: int) -> Iterator[None]:
    """Keep consumers at the end of partition 0, whose fetches wait half a minute for records that do not come."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "tierd-waiting",
        "log_level": 0,
        "fetch.wait.max.ms": 30_000,
    }
    with ExitStack() as opened:
        for _ in range(count):
            consumer = Consumer(settings)
            opened.callback(consumer.close)
            consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        yield


def known_partitions(bootstrap: str) -> set[tuple[str, int]]:
    """Return the partitions that the metadata of a server names."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topics = admin.list_topics(timeout=CLIENT_DEADLINE_S).topics
    return {(name, partition) for name, topic in topics.items() for partition in topic.partitions}


def commit_offset(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0 as a group without members, when its coordinator is ready."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})

    def committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR_YET:
                raise
            return False
        return True

    try:
        wait_until(committed, what=f"the coordinator of {group}", deadline_s=CLIENT_DEADLINE_S, interval_s=0.1)
    finally:
        consumer.close()


def committed_offsets(bootstrap: str, group: str, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the offset that a group has committed of each partition, if any; no offset without a coordinator."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2})
    try:
        found = consumer.committed([TopicPartition(*each) for each in partitions], timeout=CLIENT_DEADLINE_S)
    except KafkaException as error:
        if error.args[0].code() not in _NO_COORDINATOR_YET:
            raise
        return {}
    finally:
        consumer.close()
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def _read_to_end(consumer: Consumer, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], list[ConsumedRecord]]:
    records: dict[tuple[str, int], list[ConsumedRecord]] = {partition: [] for partition in partitions}
    unread = set(partitions)
    end_s = time.monotonic() + CLIENT_DEADLINE_S
    while unread:
        if time.monotonic() > end_s:
            raise StillWaitingError(f"the consumer did not reach the end of {unread} in {CLIENT_DEADLINE_S:g} s")
        for message in consumer.consume(1000, timeout=0.2):
            topic, partition, error = message.topic(), message.partition(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            assert topic is not None
            assert partition is not None
            if error is None:
                records[topic, partition].append(consumed(message))
            else:
                unread.discard((topic, partition))
    return records
