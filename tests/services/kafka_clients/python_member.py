"""Program ``python -m tests.services.kafka_clients.python_member CLIENT BOOTSTRAP GROUP TOPIC``: a member of a group.

It prints a JSON object for each record when the commit of the record has been answered, and ends with its input.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]  # has no stubs
from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]  # the same
from aiokafka.errors import KafkaError as AiokafkaError  # type: ignore[import-untyped]  # the same
from confluent_kafka import Consumer, KafkaException

from tests.services.waiting import is_readable

_SESSION_TIMEOUT_MS: Final = 6000
_HEARTBEAT_MS: Final = 300


def _librdkafka(bootstrap: str, group: str, topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 2000,
        }
    )
    consumer.subscribe([topic])
    try:
        while not is_readable(sys.stdin, deadline_s=0):
            messages = [message for message in consumer.consume(500, timeout=0.1) if message.error() is None]
            if messages:
                _commit(consumer)
                _tell((message.partition(), message.offset()) for message in messages)
    finally:
        consumer.close()


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:  # another member reads these records again
        print(error, file=sys.stderr, flush=True)


async def _aiokafka(bootstrap: str, group: str, topic: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=_SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
        fetch_max_wait_ms=100,
        metadata_max_age_ms=2000,
    )
    await consumer.start()
    try:
        while not ended.is_set():
            found = await consumer.getmany(timeout_ms=100)
            records = [(partition.partition, record.offset) for partition, all_ in found.items() for record in all_]
            if records:
                await _commit_to(
                    consumer, {partition: all_[-1].offset + 1 for partition, all_ in found.items() if all_}
                )
                _tell(records)
    finally:
        await consumer.stop()


async def _commit_to(consumer: AIOKafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
    try:
        await consumer.commit(offsets)
    except AiokafkaError as error:  # another member reads these records again
        print(error, file=sys.stderr, flush=True)


def _tell(records: Iterable[tuple[int | None, int | None]]) -> None:
    print(
        "\n".join(json.dumps({"partition": partition, "offset": offset}) for partition, offset in records), flush=True
    )


if __name__ == "__main__":
    client, *arguments = sys.argv[1:]
    if client == "librdkafka":
        _librdkafka(*arguments)
    else:
        asyncio.run(_aiokafka(*arguments))
