"""Concurrent work on several items, begun in order, and no further after a failure."""

import asyncio

import pytest

from tierd.tiering.removing.workers import in_order


async def test_items_are_begun_in_order_and_no_more_than_the_width_at_once() -> None:
    begun: list[int] = []
    running, most = 0, 0

    async def do(item: int) -> None:
        nonlocal running, most
        begun.append(item)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await in_order(list(range(20)), do, slots=asyncio.Semaphore(10), width=3)
    assert begun == list(range(20))
    assert most == 3


async def test_slots_bound_the_work_of_all_partitions_together() -> None:
    slots, running, most = asyncio.Semaphore(2), 0, 0

    async def do(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await asyncio.gather(*(in_order(list(range(5)), do, slots=slots, width=4) for _ in range(3)))
    assert most == 2


async def test_failure_ends_running_items_and_no_further_item_is_begun() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def do(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError("refused")
        for _ in range(3):
            await asyncio.sleep(0)
        ended.append(item)

    with pytest.raises(ValueError, match="refused"):
        await in_order(list(range(10)), do, slots=asyncio.Semaphore(10), width=2)
    assert begun == [0, 1]
    assert ended == [0]


async def test_empty_list_of_items_calls_no_work() -> None:
    async def do(item: int) -> None:
        raise AssertionError(item)

    await in_order([], do, slots=asyncio.Semaphore(1), width=4)
