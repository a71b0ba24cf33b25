import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.kafka_broker import CLUSTER_ID
from tests.fakes.watermark_broker import WatermarkBroker
from tierd.clock import SystemClock
from tierd.config import KafkaConnectionSettings
from tierd.control.broker_watermarks import BrokerWatermarks
from tierd.control.watermark_session import Watermark, WatermarkSession, key_of
from tierd.model import TopicIdPartition

ORDERS = TopicIdPartition(UUID(int=7), "orders", 0)
PAYMENTS = TopicIdPartition(UUID(int=8), "payments", 3)


@dataclass
class Setup:
    broker: WatermarkBroker
    watermarks: BrokerWatermarks

    async def current(self, partition: TopicIdPartition = ORDERS) -> int | None:
        known = await self.watermarks.current(partition, from_offset=0)
        return None if known is None else known.high_watermark


@contextlib.asynccontextmanager
async def running(broker: WatermarkBroker, *, node_id: int = 1) -> AsyncIterator[Setup]:
    async with broker.listening() as server:
        settings = KafkaConnectionSettings(bootstrap_servers=(server,), connect_timeout_s=2, request_timeout_s=2)
        watermarks = BrokerWatermarks(
            settings, cluster_id=CLUSTER_ID, node_id=node_id, clock=SystemClock(), random=lambda: 0.0
        )
        work = asyncio.create_task(watermarks.run())
        try:
            yield Setup(broker, watermarks)
        finally:
            work.cancel()
            await asyncio.wait({work})


def _is_waited_at(broker: WatermarkBroker, high_watermark: int) -> bool:
    return any(offsets.get(key_of(ORDERS)) == high_watermark for offsets in broker.sessions.values())


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    broker = WatermarkBroker()
    broker.move(key_of(ORDERS), 10)
    broker.move(key_of(PAYMENTS), 3)
    async with running(broker) as setup:
        yield setup


async def test_current_offsets_come_from_the_broker(setup: Setup) -> None:
    setup.broker.move(key_of(ORDERS), 12, last_stable_offset=11)
    assert await setup.watermarks.current(ORDERS, from_offset=0) == Watermark(12, 11, 0)
    assert setup.watermarks.is_answering


async def test_listener_hears_of_each_move_until_it_leaves(setup: Setup) -> None:
    assert await setup.current() == 10
    moved = asyncio.Event()
    leave = setup.watermarks.listen(ORDERS, moved.set, from_offset=10)
    for high_watermark in (11, 12):
        setup.broker.move(key_of(ORDERS), high_watermark)
        async with asyncio.timeout(5):
            await moved.wait()
        assert await setup.current() == high_watermark
        moved.clear()
    leave()
    moved_again = asyncio.Event()
    setup.watermarks.listen(ORDERS, moved_again.set, from_offset=0)
    setup.broker.move(key_of(ORDERS), 14)
    async with asyncio.timeout(5):
        await moved_again.wait()
    assert not moved.is_set()


async def test_partition_that_a_request_waits_for_is_not_asked_for_again(setup: Setup) -> None:
    assert await setup.current() == 10
    await eventually(lambda: any(session for session, _, _ in setup.broker.fetches), what="a session")
    outside = [fetch for fetch in setup.broker.fetches if fetch[1] == -1]
    for _ in range(20):
        assert await setup.current() == 10
    assert [fetch for fetch in setup.broker.fetches if fetch[1] == -1] == outside


async def test_listener_of_a_new_partition_hears_of_moves_while_a_request_waits_for_others(setup: Setup) -> None:
    setup.broker.is_patient = True
    assert await setup.current(ORDERS) == 10
    await eventually(lambda: any(session for session, _, _ in setup.broker.fetches), what="a request that waits")
    assert await setup.current(PAYMENTS) == 3
    moved = asyncio.Event()
    setup.watermarks.listen(PAYMENTS, moved.set, from_offset=3)
    for high_watermark in (4, 5, 6):
        setup.broker.move(key_of(PAYMENTS), high_watermark)
        async with asyncio.timeout(5):
            await moved.wait()
        moved.clear()
        assert await setup.current(PAYMENTS) == high_watermark
    assert setup.broker.sessions == {1: {key_of(ORDERS): 10}}, "the request waits for the first partition alone"
    setup.broker.is_patient = False
    setup.broker.move(key_of(ORDERS), 11)  # ends the request


async def test_new_partition_is_not_asked_for_again_once_a_request_waits_for_it(setup: Setup) -> None:
    assert await setup.current(ORDERS) == 10
    await eventually(lambda: bool(setup.broker.sessions), what="a session")
    setup.watermarks.listen(PAYMENTS, lambda: None, from_offset=3)
    await eventually(lambda: key_of(PAYMENTS) in setup.broker.sessions[1], what="both followed")
    await eventually(lambda: not setup.watermarks._joining.is_set(), what="the last question")
    outside = [fetch for fetch in setup.broker.fetches if fetch[1] == -1]
    for high_watermark in range(11, 16):
        setup.broker.move(key_of(ORDERS), high_watermark)
        await eventually(partial(_is_waited_at, setup.broker, high_watermark), what="a request at the new offset")
    assert [fetch for fetch in setup.broker.fetches if fetch[1] == -1] == outside


async def test_session_asks_only_for_what_changed(setup: Setup) -> None:
    assert await setup.current(ORDERS) == 10
    assert await setup.current(PAYMENTS) == 3
    await eventually(lambda: any(len(known) == 2 for known in setup.broker.sessions.values()), what="both followed")
    await eventually(lambda: setup.broker.fetches[-1][2] == 0, what="a request without a change")
    setup.broker.move(key_of(PAYMENTS), 4)
    await eventually(lambda: setup.broker.fetches[-1][2] == 1, what="the request with the new offset")


async def test_broker_that_forgot_the_session_is_asked_for_everything(setup: Setup) -> None:
    moved = asyncio.Event()
    setup.watermarks.listen(ORDERS, moved.set, from_offset=0)
    await eventually(lambda: bool(setup.broker.sessions), what="a session")
    setup.broker.forget_sessions()
    await eventually(lambda: bool(setup.broker.sessions), what="another session")
    moved.clear()
    setup.broker.move(key_of(ORDERS), 20)
    async with asyncio.timeout(5):
        await moved.wait()


async def test_broker_without_sessions_wakes_listeners_too() -> None:
    broker = WatermarkBroker(has_sessions=False)
    broker.move(key_of(ORDERS), 10)
    async with running(broker) as setup:
        assert await setup.current() == 10
        moved = asyncio.Event()
        setup.watermarks.listen(ORDERS, moved.set, from_offset=10)
        broker.move(key_of(ORDERS), 11)
        async with asyncio.timeout(5):
            await moved.wait()


async def test_lost_connection_keeps_what_is_known_and_comes_back(setup: Setup) -> None:
    assert await setup.current() == 10
    setup.broker.is_silent = True
    setup.broker.drop_connections()
    await eventually(lambda: not setup.watermarks.is_answering, what="the failure")
    assert await setup.current() == 10
    assert setup.watermarks.statistics().last_error
    setup.broker.is_silent = False
    setup.broker.drop_connections()
    setup.broker.move(key_of(ORDERS), 15)
    await eventually(lambda: setup.watermarks.is_answering, what="the recovery")
    assert await setup.current() == 15


async def test_partition_that_the_broker_does_not_know_has_no_watermark(setup: Setup) -> None:
    unknown = TopicIdPartition(UUID(int=9), "gone", 0)
    assert await setup.current(unknown) is None
    assert setup.watermarks.statistics().refused == {key_of(unknown): "unknown_topic_id"}
    assert await setup.current() == 10


async def test_broker_with_another_node_id_is_not_asked() -> None:
    async with running(WatermarkBroker(), node_id=2) as setup:
        assert await setup.current() is None
        await eventually(lambda: bool(setup.watermarks.statistics().last_error), what="the failure")
        assert "broker 2 is not among the brokers" in setup.watermarks.statistics().last_error
        assert setup.broker.fetches == []


def test_new_partitions_join_a_session_with_several_requests() -> None:
    session = WatermarkSession()
    offsets = {(UUID(int=7), number): 0 for number in range(2500)}
    for joined in (1000, 2000, 2500):
        session.request(offsets, max_wait_s=1)
        assert len(session.covered) == joined
