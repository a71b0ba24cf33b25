"""The client aiokafka, which reads partitions from their start to their end."""

import asyncio
import base64
from typing import Any

from aiokafka import (  # type: ignore[import-untyped]  # has no stubs
    AIOKafkaConsumer,
    ConsumerRecord,
    TopicPartition,
)

from tests.services.kafka_clients.partitions import Counts, Records, isolation_level
from tests.services.kafka_producer import CLIENT_DEADLINE_S

_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def read(bootstrap: str, wanted: Counts, *, committed: bool) -> Records:
    """Read partitions until the position of the client is at the end that the last fetch answer named."""
    return asyncio.run(_read(bootstrap, wanted, committed=committed))


async def _read(bootstrap: str, wanted: Counts, *, committed: bool) -> Records:
    found: Records = {partition: [] for partition in wanted}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation_level(committed=committed),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    async with asyncio.timeout(CLIENT_DEADLINE_S):
        await consumer.start()
        try:
            partitions = [TopicPartition(*partition) for partition in wanted]
            consumer.assign(partitions)
            while not await _is_read(consumer, partitions, committed=committed):
                for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                    found[tuple(partition)] += [_shown(record) for record in records]
        finally:
            await consumer.stop()
    return found


async def _is_read(consumer: AIOKafkaConsumer, partitions: list[TopicPartition], *, committed: bool) -> bool:
    for partition in partitions:
        end = consumer.last_stable_offset(partition) if committed else consumer.highwater(partition)
        if end is None or await consumer.position(partition) < end:
            return False
    return True


def _shown(record: "ConsumerRecord[bytes, bytes]") -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": _TYPES[record.timestamp_type],
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
