"""Usage: leaks are found, garbage and chance are not taken for leaks. Every leak in this file is on purpose."""

import asyncio
import gc
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import lasting_objects
from tests.tiering.usage import (
    BYTES_A_DAY,
    DESCRIPTORS_ALLOWED,
    PARTS_A_DAY,
    PARTS_ALLOWED,
    TASKS_ALLOWED,
    Usage,
    assert_steady,
    median_slope,
)
from tierd.tiering.supervision import PassWaiters

DAYS = 8
EVENTS = 15  # events a day; the lowest count of any kind in the simulated week


def days_of(live: Callable[[int], object]) -> list[Usage]:
    """Return the usage at the end of each day, after two days that are no part of it."""
    live(0)
    Usage()
    days = []
    for day in range(1, DAYS + 1):
        live(day)
        days.append(Usage())
    return days


@pytest.fixture
def leaked() -> Iterator[list[object]]:
    """Return a list that keeps its objects while the test lasts."""
    kept: list[object] = []
    yield kept
    kept.clear()


def garbage(_day: int) -> None:
    """Use much memory and release all of it, more on some days than on others."""
    amount = random.Random(_day).randrange(1, 8)
    large = [bytes(2_000_000) for _ in range(amount)]
    small = [[number] for number in range(2_000 * amount)]
    cycle: list[object] = [large, small]
    cycle.append(cycle)


async def test_usage_of_days_that_leave_only_garbage_is_steady() -> None:
    days = days_of(garbage)
    assert_steady(days)
    for day in days[1:]:
        day.assert_no_more_than(days[0], marks=Counter())


@pytest.mark.parametrize(
    ("leak", "name"),
    [
        pytest.param(lambda: bytes(40_000), "allocated_bytes", id="buffers"),
        pytest.param(lambda: [object() for _ in range(100)], "allocated_blocks", id="small-objects"),
        pytest.param(lambda: bytearray(1_000_000), "allocated_bytes", id="pages-that-are-mapped"),
    ],
)
async def test_leak_at_each_event_is_found_beside_garbage(
    leaked: list[object], leak: Callable[[], object], name: str
) -> None:
    def live(day: int) -> None:
        garbage(day)
        leaked.extend(leak() for _ in range(EVENTS))

    with pytest.raises(AssertionError, match=rf"^{name} grows by"):
        assert_steady(days_of(live))


async def test_leak_of_one_object_of_tierd_at_each_event_is_found_with_its_name(leaked: list[object]) -> None:
    def live(day: int) -> None:
        garbage(day)
        leaked.extend(PassWaiters() for _ in range(PARTS_A_DAY + 1))

    days = days_of(live)
    with pytest.raises(AssertionError, match=r"^PassWaiters grow by"):
        assert_steady(days)
    assert_steady(days, marks_a_day={"PassWaiters": 1})
    assert_steady(days, filling=["PassWaiters"])


async def test_leak_of_objects_of_tierd_is_found_with_their_name(leaked: list[object]) -> None:
    settled = Usage()
    leaked.extend(PassWaiters() for _ in range(PARTS_ALLOWED + 1))
    with pytest.raises(AssertionError, match="PassWaiters"):
        Usage().assert_no_more_than(settled, marks=Counter())


async def test_growth_of_a_collection_in_an_object_of_tierd_is_found_with_its_name() -> None:
    waiters = PassWaiters()
    settled = Usage()
    for _ in range(PARTS_ALLOWED + 1):
        waiters.next_pass()
    with pytest.raises(AssertionError, match=r"PassWaiters\._waiting"):
        Usage().assert_no_more_than(settled, marks=Counter())
    waiters.close()


async def test_growth_of_a_collection_in_an_object_that_was_set_aside_is_found_too() -> None:
    waiters = PassWaiters()
    lasting_objects.set_aside()
    assert not any(each is waiters for each in gc.get_objects())
    settled = Usage()
    for _ in range(PARTS_ALLOWED + 1):
        waiters.next_pass()
    with pytest.raises(AssertionError, match=r"PassWaiters\._waiting"):
        Usage().assert_no_more_than(settled, marks=Counter())
    waiters.close()


async def test_leak_of_tasks_is_found() -> None:
    settled, never = Usage(), asyncio.Event()
    tasks = [asyncio.create_task(never.wait()) for _ in range(TASKS_ALLOWED + 1)]
    with pytest.raises(AssertionError, match="tasks"):
        Usage().assert_no_more_than(settled, marks=Counter())
    never.set()
    await asyncio.gather(*tasks)


async def test_leak_of_descriptors_is_found() -> None:
    settled = Usage()
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(DESCRIPTORS_ALLOWED + 1)]
    try:
        with pytest.raises(AssertionError, match="descriptors"):
            Usage().assert_no_more_than(settled, marks=Counter())
    finally:
        for each in opened:
            os.close(each)


@given(
    slope=st.integers(-(10**6), 10**6),
    noise=st.lists(st.integers(-1000, 1000), min_size=DAYS, max_size=DAYS),
    peak=st.integers(0, DAYS - 1),
)
def test_slope_is_found_below_noise_and_one_peak(slope: int, noise: list[int], peak: int) -> None:
    values = [slope * day + each for day, each in enumerate(noise)]
    assert abs(median_slope(values) - slope) <= 2000
    values[peak] += 10**9
    assert abs(median_slope(values) - slope) <= 2000


def test_step_between_two_days_is_no_slope() -> None:
    """The process uses one arena more from one day on: its size is the same on each later day."""
    settled, step = 320_000_000, 4 * BYTES_A_DAY
    for at in range(1, DAYS):
        assert median_slope([settled] * at + [settled + step] * (DAYS - at)) <= BYTES_A_DAY
