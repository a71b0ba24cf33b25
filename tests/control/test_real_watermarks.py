"""BrokerWatermarks over real brokers: a leader and a follower, transactions, and a topic that is deleted."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException

from tests.control.connecting import plaintext
from tests.fakes.eventually import eventually
from tests.fakes.kafka_broker import CLUSTER_ID
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until
from tierd.clock import SystemClock
from tierd.control.broker_watermarks import BrokerWatermarks
from tierd.control.watermark_session import Watermark
from tierd.model import TopicIdPartition

RECORD = SentRecord(key=b"key", value=b"value", timestamp_ms=1_700_000_000_000)

pytestmark = pytest.mark.service("kafka")


@pytest.fixture(scope="module", params=["3.9.2", "4.3.1"])
def pair(shared_kafka: MakeCluster, request: pytest.FixtureRequest) -> KafkaCluster:
    """Start two nodes."""
    return shared_kafka(nodes=2, version=request.param)


@pytest.fixture
def partition(pair: KafkaCluster) -> TopicIdPartition:
    """Create a topic that both nodes know; node 1 leads it."""
    name = f"orders-{uuid4().hex[:8]}"
    pair.create_topic(name, replicas=[[1, 2]])
    wait_until(lambda: pair.partition_dir(name, 0, node=2) is not None, what="the other replica", deadline_s=30)
    found: list[TopicIdPartition] = []

    def look() -> bool:
        with contextlib.suppress(KafkaException):  # no broker knows a new topic at once
            found.append(TopicIdPartition(pair.topic_id(name), name, 0))
        return bool(found)

    wait_until(look, what="the topic", deadline_s=30)
    return found[0]


@contextlib.asynccontextmanager
async def watching(cluster: KafkaCluster, *, node_id: int) -> AsyncIterator[BrokerWatermarks]:
    watermarks = BrokerWatermarks(
        plaintext(*cluster.bootstrap.split(",")), cluster_id=CLUSTER_ID, node_id=node_id, clock=SystemClock()
    )
    work = asyncio.create_task(watermarks.run())
    try:
        yield watermarks
    finally:
        work.cancel()
        await asyncio.wait({work})


async def current(watermarks: BrokerWatermarks, partition: TopicIdPartition) -> Watermark:
    async with asyncio.timeout(10):
        # A broker does not know a new topic at once, and no event reports it.
        while (known := await watermarks.current(partition, from_offset=0)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return known


async def test_leader_and_follower_tell_watermark_and_stable_offset_as_they_move(
    pair: KafkaCluster, partition: TopicIdPartition
) -> None:
    async with watching(pair, node_id=1) as leader, watching(pair, node_id=2) as follower:
        moved = {node: asyncio.Event() for node in (1, 2)}
        for node, watermarks in ((1, leader), (2, follower)):
            watermarks.listen(partition, moved[node].set, from_offset=0)
            assert await current(watermarks, partition) == Watermark(0, 0, 0)
        with pair.producer(transactional_id=uuid4().hex) as producer:
            producer.begin_transaction()
            producer.send(partition.topic, 0, [RECORD] * 3)
            await asyncio.to_thread(producer.flush)
            for node, watermarks in ((1, leader), (2, follower)):
                async with asyncio.timeout(10):
                    while await current(watermarks, partition) != Watermark(3, 0, 0):
                        await moved[node].wait()
                        moved[node].clear()
            await asyncio.to_thread(lambda: producer.end_transaction(commit=True))
            for node, watermarks in ((1, leader), (2, follower)):
                async with asyncio.timeout(10):
                    while await current(watermarks, partition) != Watermark(4, 4, 0):
                        await moved[node].wait()
                        moved[node].clear()


async def test_listener_is_woken_within_milliseconds_of_an_append(
    pair: KafkaCluster, partition: TopicIdPartition
) -> None:
    async with watching(pair, node_id=1) as watermarks:
        moved = asyncio.Event()
        watermarks.listen(partition, moved.set, from_offset=0)
        await current(watermarks, partition)
        delays_s = []
        with pair.producer() as producer:
            for _ in range(20):
                moved.clear()
                producer.send(partition.topic, 0, [RECORD])
                await asyncio.to_thread(producer.flush)  # returns when the high watermark has moved
                begun_s = time.monotonic()
                async with asyncio.timeout(10):
                    await moved.wait()
                delays_s.append(time.monotonic() - begun_s)
        assert statistics.median(delays_s) < 0.1  # of a machine at load; docs/performance.md has the measurement


async def test_deleted_topic_is_refused_and_the_broker_goes_on_answering(
    pair: KafkaCluster, partition: TopicIdPartition
) -> None:
    async with watching(pair, node_id=1) as watermarks:
        await current(watermarks, partition)
        await asyncio.to_thread(pair.delete_topic, partition.topic)
        await eventually(lambda: bool(watermarks.statistics().refused), what="the refusal")
        assert watermarks.is_answering
