"""Items that are made one ahead of the caller."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from tierd.tasks import one_ahead


class Items:
    """Generator of numbers that notes what it has made."""

    def __init__(self, count: int, *, failing_at: int = -1, waits_at: int = -1) -> None:
        self.made: list[int] = []
        self.is_closed = False
        self._count = count
        self._failing_at = failing_at
        self._waits_at = waits_at

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self._count):
                await asyncio.sleep(0)
                if number == self._failing_at:
                    raise OSError("no more")
                if number == self._waits_at:
                    await asyncio.Event().wait()
                self.made.append(number)
                yield number
        finally:
            self.is_closed = True


async def turns() -> None:
    """Let every other task run as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_items_come_in_order_to_the_end() -> None:
    items = Items(4)

    assert [number async for number in one_ahead(items.numbers(), name="ahead")] == [0, 1, 2, 3]
    assert items.is_closed


async def test_one_item_and_no_more_is_made_while_the_caller_works() -> None:
    items = Items(4)
    async with aclosing(one_ahead(items.numbers(), name="ahead")) as ahead:
        assert await anext(ahead) == 0
        await turns()
        assert items.made == [0, 1]
        assert await anext(ahead) == 1
        await turns()
        assert items.made == [0, 1, 2]
    assert items.is_closed


async def test_failure_comes_behind_the_items_before_it() -> None:
    items = Items(4, failing_at=2)
    async with aclosing(one_ahead(items.numbers(), name="ahead")) as ahead:
        assert await anext(ahead) == 0
        assert await anext(ahead) == 1
        await turns()
        with pytest.raises(OSError, match="no more"):
            await anext(ahead)


@pytest.mark.parametrize("items", [Items(4, waits_at=1), Items(4, failing_at=1)], ids=["waits", "failed"])
async def test_caller_that_stops_early_ends_what_is_made_ahead(items: Items) -> None:
    async with aclosing(one_ahead(items.numbers(), name="ahead")) as ahead:
        assert await anext(ahead) == 0
        await turns()

    assert items.is_closed
    assert {task.get_name() for task in asyncio.all_tasks()}.isdisjoint({"ahead"})


async def test_cancelled_caller_closes_the_generator() -> None:
    items = Items(4, waits_at=1)

    async def work() -> None:
        async with aclosing(one_ahead(items.numbers(), name="ahead")) as ahead:
            assert [number async for number in ahead] == []

    working = asyncio.create_task(work())
    await turns()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert items.is_closed
