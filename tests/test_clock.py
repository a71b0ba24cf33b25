"""Waits on a clock."""

import asyncio

import pytest

from tests.fakes.manual_clock import ManualClock
from tierd.clock import wait_for_event


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_wait_ends_with_the_event_and_leaves_no_task() -> None:
    clock, event = ManualClock(), asyncio.Event()
    waiting = asyncio.create_task(wait_for_event(event, clock, 10.0))
    await _turns()
    assert not waiting.done()
    event.set()
    assert await waiting
    await _turns()
    assert (clock.sleeping, len(asyncio.all_tasks())) == (0, 1)


async def test_wait_ends_with_the_time_and_leaves_no_task() -> None:
    clock = ManualClock()
    waiting = asyncio.create_task(wait_for_event(asyncio.Event(), clock, 10.0))
    await _turns()
    clock.advance(9.0)
    await _turns()
    assert not waiting.done()
    clock.advance(1.0)
    assert not await waiting
    await _turns()
    assert len(asyncio.all_tasks()) == 1


async def test_cancelled_wait_leaves_no_task() -> None:
    clock = ManualClock()
    waiting = asyncio.create_task(wait_for_event(asyncio.Event(), clock, 10.0))
    await _turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _turns()
    assert (clock.sleeping, len(asyncio.all_tasks())) == (0, 1)
