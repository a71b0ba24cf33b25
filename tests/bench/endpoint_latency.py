"""Latencies of the read endpoint: the first bytes of a cold read, and the wake-up of a waiting fetch."""

import asyncio
import random
from statistics import quantiles
from time import perf_counter
from typing import Final

from confluent_kafka import Producer

from tests.bench.report import Figure
from tests.scenarios.load_client import LoadConnection
from tests.services.kafka_clients.librdkafka import known_partitions
from tests.services.kafka_cluster import KafkaBroker
from tests.services.waiting import wait_until

_TOPIC: Final = "wake-ups"
_FIRST_BYTES: Final = 64 << 10
_MAX_WAIT_S: Final = 20.0
_SETTLED_S: Final = 0.03  # after which a fetch waits at the server


def first_bytes_ms(bootstrap: str, topic: str) -> float:
    """Return the time of a first read of a topic on a connection that is open."""
    return asyncio.run(_first_bytes_ms(bootstrap, topic))


async def _first_bytes_ms(bootstrap: str, topic: str) -> float:
    async with await _connected(bootstrap) as connection:
        begun_s = perf_counter()
        found = await connection.fetch(topic, 0, 0, max_bytes=_FIRST_BYTES, max_wait_s=_MAX_WAIT_S)
        assert found.records
        return (perf_counter() - begun_s) * 1000


def wake_ups_ms(broker: KafkaBroker, bootstrap: str, *, samples: int) -> list[Figure]:
    """Measure from the acknowledgement of a record to its arrival at a fetch that waited, here and at the broker."""
    broker.create_topic(_TOPIC)
    wait_until(lambda: (_TOPIC, 0) in known_partitions(bootstrap), what="the endpoint to know the topic", deadline_s=60)
    figures: list[Figure] = []
    for name, address, goal in (("tierd", bootstrap, "<= 20"), ("stock broker", broker.bootstrap, "")):
        found = asyncio.run(_wake_ups_ms(broker, address, samples))
        percentiles = quantiles(found, n=100)
        figures += [
            Figure(f"endpoint, wake-up of a waiting fetch: {name}, p50", percentiles[49], "ms"),
            Figure(f"endpoint, wake-up of a waiting fetch: {name}, p99", percentiles[98], "ms", goal),
        ]
    return figures


async def _wake_ups_ms(broker: KafkaBroker, bootstrap: str, samples: int) -> list[float]:
    found: list[float] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "all"})
    offset = broker.end_offset(_TOPIC, 0)
    async with await _connected(bootstrap) as connection:
        for _ in range(samples):
            waiting = asyncio.create_task(_arrival_s(connection, offset), name="waiting fetch")
            await asyncio.sleep(_SETTLED_S + random.random() * _SETTLED_S)
            acknowledged_s = await asyncio.to_thread(_send_one, producer)
            # The broker may answer the fetch before the producer: both follow the same append.
            found.append(max(0.0, await waiting - acknowledged_s) * 1000)
            offset += 1
    return found


async def _arrival_s(connection: LoadConnection, offset: int) -> float:
    while True:
        found = await connection.fetch(_TOPIC, 0, offset, max_bytes=_FIRST_BYTES, max_wait_s=_MAX_WAIT_S)
        if found.records:
            return perf_counter()


def _send_one(producer: Producer) -> float:
    """Send a record; return the time of its acknowledgement."""
    acknowledged: list[float] = []
    producer.produce(
        _TOPIC, b"woken", partition=0, on_delivery=lambda _error, _message: acknowledged.append(perf_counter())
    )
    producer.flush(_MAX_WAIT_S)
    return acknowledged[0]


async def _connected(bootstrap: str) -> LoadConnection:
    host, _, port = bootstrap.rpartition(":")
    return await LoadConnection.opened(host, int(port))
