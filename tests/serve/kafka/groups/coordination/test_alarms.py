"""Alarms ring in time, however deadlines are moved, and one task waits for all of them."""

import asyncio
import math

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.serve.kafka.groups.coordination.alarms import Alarms


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=20))
def test_each_name_rings_at_its_earliest_deadline(deadlines: list[tuple[str, int]]) -> None:
    clock = FakeClock()
    alarms = Alarms(clock)
    expected: dict[str, int] = {}
    for name, deadline_s in deadlines:
        alarms.set(name, deadline_s)
        expected[name] = min(deadline_s, expected.get(name, 99))
    rung: dict[str, int] = {}
    for second in range(21):
        for name in alarms.take_due():
            assert name not in rung
            rung[name] = second
        clock.advance(1.0)
    assert rung == expected


async def test_earlier_deadline_wakes_the_task_that_waits_for_a_later_one() -> None:
    clock = ManualClock()
    alarms = Alarms(clock)
    alarms.set("late", 100.0)
    waiting = asyncio.create_task(alarms.wait())
    await eventually(lambda: clock.sleeping == 1, what="the wait for the late one")
    alarms.set("soon", 1.0)
    await waiting
    assert alarms.take_due() == []
    waiting = asyncio.create_task(alarms.wait())
    await eventually(lambda: clock.sleeping == 1, what="the wait for the earlier one")
    clock.advance(1.0)
    await waiting
    assert alarms.take_due() == ["soon"]


async def test_infinite_deadlines_do_not_ring_and_the_wait_leaves_nothing_when_cancelled() -> None:
    clock = ManualClock()
    alarms = Alarms(clock)
    alarms.set("never", math.inf)
    alarms.set("late", 5.0)
    tasks = asyncio.all_tasks()
    waiting = asyncio.create_task(alarms.wait())
    await eventually(lambda: clock.sleeping == 1, what="the wait")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert asyncio.all_tasks() == tasks
    clock.advance(9.0)
    assert alarms.take_due() == ["late"]
