"""BrokerTopicConfigs over a scripted broker; a real one is in test_real_kafka."""

import asyncio
from collections.abc import Callable

import pytest

from tests.control.connecting import plaintext
from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.kafka_broker import CLUSTER_ID, ScriptedBroker
from tierd.clock import Clock, SystemClock
from tierd.control import BrokerTopicConfigs
from tierd.errors import KafkaError, KafkaUnreachableError

WEEK = {"retention.ms": "604800000", "cleanup.policy": "delete"}


def configs(
    address: str,
    clock: Clock | None = None,
    *,
    on_outcome: Callable[[KafkaError | None], None] = lambda _: None,
    request_timeout_s: float = 30.0,
) -> BrokerTopicConfigs:
    return BrokerTopicConfigs(
        plaintext(address, request_timeout_s=request_timeout_s),
        cluster_id=CLUSTER_ID,
        clock=clock or FakeClock(),
        random=lambda: 0.5,
        on_outcome=on_outcome,
    )


async def test_topic_has_no_settings_before_the_first_answer_of_a_broker() -> None:
    async with ScriptedBroker(configs={"orders": WEEK}).listening() as address:
        cache = configs(address)
        assert cache.get("orders") is None
        assert await cache.refresh() == {"orders"}
        assert cache.get("orders") == WEEK
        assert await cache.refresh() == frozenset()


async def test_listeners_get_only_topics_whose_settings_changed() -> None:
    broker = ScriptedBroker(configs={"orders": WEEK, "payments": WEEK})
    async with broker.listening() as address:
        cache, heard = configs(address), list[frozenset[str]]()
        cache.on_change(heard.append)
        cache.get("orders"), cache.get("payments")
        await cache.refresh()
        await cache.refresh()
        broker.configs["orders"] = WEEK | {"retention.ms": "1"}
        await cache.refresh()
    assert heard == [{"orders", "payments"}, {"orders"}]


async def test_known_settings_stay_during_an_outage_of_the_brokers() -> None:
    broker = ScriptedBroker(configs={"orders": WEEK})
    async with broker.listening() as address:
        cache = configs(address)
        cache.get("orders")
        await cache.refresh()
        broker.spoil = lambda _: None
        with pytest.raises(KafkaUnreachableError):
            await cache.refresh()
        assert cache.get("orders") == WEEK
        assert "cannot be asked for" in cache.problem


async def test_outcome_of_each_round_that_asks_a_broker_is_reported() -> None:
    broker, told = ScriptedBroker(configs={"orders": WEEK}), list[KafkaError | None]()
    async with broker.listening() as address:
        cache = configs(address, on_outcome=told.append)
        await cache.refresh()
        assert told == [], "without a topic no broker is asked"
        cache.get("orders")
        await cache.refresh()
        broker.spoil = lambda _: None
        with pytest.raises(KafkaUnreachableError):
            await cache.refresh()
    assert told[0] is None
    assert [type(failure) for failure in told[1:]] == [KafkaUnreachableError]


async def test_topic_that_the_brokers_no_longer_know_has_no_settings() -> None:
    broker = ScriptedBroker(configs={"orders": WEEK})
    async with broker.listening() as address:
        cache = configs(address)
        cache.get("orders")
        await cache.refresh()
        del broker.configs["orders"]
        assert await cache.refresh() == {"orders"}
        assert cache.get("orders") is None
        assert "orders: unknown_topic_or_partition" in cache.problem


async def test_topics_without_readers_are_no_longer_requested() -> None:
    broker = ScriptedBroker(configs={"orders": WEEK})
    async with broker.listening() as address:
        cache = configs(address)
        cache.get("orders")
        for _ in range(11):
            await cache.refresh()
        asked = len(broker.requests)
        await cache.refresh()
        assert len(broker.requests) == asked


async def test_many_topics_are_requested_in_requests_of_bounded_size() -> None:
    broker = ScriptedBroker(configs={f"topic-{n}": WEEK for n in range(600)})
    async with broker.listening() as address:
        cache = configs(address)
        for topic in broker.configs:
            cache.get(topic)
        assert len(await cache.refresh()) == 600
    assert [asked for key, asked in broker.requests if key == 32] == [250, 250, 100]


async def test_new_topic_is_requested_soon_and_a_failure_is_retried() -> None:
    broker = ScriptedBroker(configs={"orders": WEEK}, is_silent=True)
    async with broker.listening() as address:
        cache = configs(address, SystemClock(), request_timeout_s=0.3)
        running = asyncio.create_task(cache.run())
        cache.get("orders")
        await eventually(lambda: cache.problem != "", what="a failure")
        broker.is_silent = False
        await eventually(lambda: cache.get("orders") == WEEK, what="settings")
        broker.configs["payments"] = WEEK
        await eventually(lambda: cache.get("payments") == WEEK, what="settings of a new topic")
        running.cancel()
        await asyncio.wait([running])
