"""Part of the status about the watermarks that a broker reports."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.kafka_broker import CLUSTER_ID
from tests.fakes.watermark_broker import WatermarkBroker
from tierd.app.endpoint.log_watermarks import LogWatermarks
from tierd.clock import SystemClock
from tierd.config import KafkaConnectionSettings
from tierd.control import BrokerWatermarks
from tierd.control.watermark_session import key_of
from tierd.model import TopicIdPartition
from tierd.tiering import BrokerLogOffsets

ORDERS = TopicIdPartition(UUID(int=7), "orders", 0)
FORBIDDEN = TopicIdPartition(UUID(int=9), "forbidden", 0)


@contextlib.asynccontextmanager
async def watching(broker: WatermarkBroker) -> AsyncIterator[BrokerWatermarks]:
    async with broker.listening() as server:
        settings = KafkaConnectionSettings(bootstrap_servers=(server,), connect_timeout_s=2, request_timeout_s=2)
        watermarks = BrokerWatermarks(settings, cluster_id=CLUSTER_ID, node_id=1, clock=SystemClock())
        work = asyncio.create_task(watermarks.run())
        try:
            yield watermarks
        finally:
            work.cancel()
            await asyncio.wait({work})


@pytest.fixture
async def broker() -> AsyncIterator[BrokerWatermarks]:
    told = WatermarkBroker()
    told.move(key_of(ORDERS), 10)
    async with watching(told) as watermarks:
        yield watermarks


def told_by(broker: BrokerWatermarks) -> LogWatermarks:
    return LogWatermarks(BrokerLogOffsets(), broker=broker, broker_log_dirs=(), clock=SystemClock())


async def test_age_is_not_known_while_no_consumer_reads(broker: BrokerWatermarks) -> None:
    watermarks = told_by(broker)

    assert watermarks.age_s() is None
    await broker.current(ORDERS, from_offset=0)
    age_s = watermarks.age_s()
    assert age_s is not None
    assert 0 <= age_s < 30
    assert watermarks.problem() == ""


async def test_partitions_that_the_broker_refuses_are_a_problem(broker: BrokerWatermarks) -> None:
    watermarks = told_by(broker)

    assert await broker.current(FORBIDDEN, from_offset=0) is None
    await eventually(lambda: bool(watermarks.problem()), what="the refusal")

    assert watermarks.problem() == (
        "the broker answers unknown_topic_id for some partitions; tierd's user needs Read on their topics"
    )
