"""StaticLeadership by itself."""

import asyncio
from uuid import UUID

import pytest

from tierd.control import Leadership, Role, StaticLeadership
from tierd.model import TopicIdPartition

ORDERS = TopicIdPartition(UUID(int=1), "orders", 0)
PAYMENTS = TopicIdPartition(UUID(int=2), "payments", 11)


async def _next(leadership: StaticLeadership, count: int) -> list[Leadership]:
    found: list[Leadership] = []
    async for event in leadership.changes():
        found.append(event)
        if len(found) == count:
            break
    return found


async def test_every_observed_replica_is_led_at_its_latest_epoch() -> None:
    leadership = StaticLeadership()
    leadership.observe(ORDERS, 3)
    leadership.observe(PAYMENTS, 0)
    assert await _next(leadership, 2) == [
        Leadership(ORDERS, 3, Role.LEADER),
        Leadership(PAYMENTS, 0, Role.LEADER),
    ]


async def test_replica_that_matches_no_pattern_is_followed() -> None:
    leadership = StaticLeadership([r"orders-\d+"])
    leadership.observe(ORDERS, 3)
    leadership.observe(PAYMENTS, 3)
    assert [event.role for event in await _next(leadership, 2)] == [Role.LEADER, Role.FOLLOWER]


async def test_patterns_match_the_whole_name_of_a_topic() -> None:
    leadership = StaticLeadership(["payments-1"])
    leadership.observe(PAYMENTS, 3)
    assert [event.role for event in await _next(leadership, 1)] == [Role.FOLLOWER]


async def test_a_higher_epoch_is_announced_again_and_an_equal_one_is_not() -> None:
    leadership = StaticLeadership()
    leadership.observe(ORDERS, 3)
    assert len(await _next(leadership, 1)) == 1
    leadership.observe(ORDERS, 3)
    leadership.observe(ORDERS, 4)
    assert await _next(leadership, 1) == [Leadership(ORDERS, 4, Role.LEADER)]


async def test_event_that_is_outdated_when_it_is_read_is_left_out() -> None:
    leadership = StaticLeadership()
    leadership.observe(ORDERS, 3)
    leadership.observe(ORDERS, 4)
    assert await _next(leadership, 1) == [Leadership(ORDERS, 4, Role.LEADER)]


async def test_a_replica_without_an_epoch_waits_until_it_has_one() -> None:
    leadership = StaticLeadership()
    leadership.observe(ORDERS, None)
    waiting = asyncio.create_task(_next(leadership, 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    leadership.observe(ORDERS, 0)
    assert await waiting == [Leadership(ORDERS, 0, Role.LEADER)]


async def test_a_forgotten_replica_is_announced_again_when_it_returns() -> None:
    leadership = StaticLeadership()
    leadership.observe(ORDERS, 3)
    await _next(leadership, 1)
    leadership.forget(ORDERS)
    leadership.observe(ORDERS, 3)
    assert await _next(leadership, 1) == [Leadership(ORDERS, 3, Role.LEADER)]


async def test_event_of_a_replica_that_was_forgotten_is_left_out() -> None:
    leadership = StaticLeadership()
    leadership.observe(ORDERS, 3)
    leadership.forget(ORDERS)
    leadership.observe(PAYMENTS, 3)
    assert [event.partition for event in await _next(leadership, 1)] == [PAYMENTS]


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(Exception, match="unterminated"):
        StaticLeadership(["orders-("])
