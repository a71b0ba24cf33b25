import asyncio

import pytest

from tierd.restore.changelog.reader.restore_limits import ByteBudget, RestartLimit


async def settle() -> None:
    """Let every task run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_reservation_waits_until_enough_is_released_and_the_order_is_kept() -> None:
    budget = ByteBudget(10)
    granted: list[str] = []

    async def reserve(name: str, size_bytes: int) -> None:
        await budget.reserve(size_bytes)
        granted.append(name)

    await reserve("first", 6)
    async with asyncio.TaskGroup() as group:
        group.create_task(reserve("large", 8))
        await settle()
        group.create_task(reserve("small", 2))
        await settle()
        assert granted == ["first"]  # the small one does not pass the large one
        budget.release(6)
        await settle()
    assert granted == ["first", "large", "small"]
    assert budget.used_bytes == 10


async def test_more_than_the_total_is_taken_alone() -> None:
    budget = ByteBudget(10)
    await budget.reserve(50)
    waiting = asyncio.create_task(budget.reserve(1))
    await settle()
    assert not waiting.done()
    budget.release(50)
    await waiting
    assert budget.used_bytes == 1


async def test_exchange_lets_the_next_one_in() -> None:
    budget = ByteBudget(10)
    await budget.reserve(10)
    waiting = asyncio.create_task(budget.reserve(4))
    await settle()
    budget.exchange(10, 6)
    await waiting
    assert budget.used_bytes == 10


async def test_memory_that_is_released_while_a_reservation_is_cancelled_goes_to_the_next_one() -> None:
    budget = ByteBudget(10)
    await budget.reserve(10)
    gone = asyncio.create_task(budget.reserve(8))
    waiting = asyncio.create_task(budget.reserve(3))
    await settle()
    gone.cancel()
    budget.release(10)  # before the cancelled task has run
    await waiting
    await asyncio.wait({gone})
    assert (gone.cancelled(), budget.used_bytes) == (True, 3)


@pytest.mark.parametrize("is_granted", [False, True])
async def test_cancelled_reservation_leaves_nothing_reserved(*, is_granted: bool) -> None:
    budget = ByteBudget(10)
    await budget.reserve(10)
    first = asyncio.create_task(budget.reserve(8))
    second = asyncio.create_task(budget.reserve(2))
    await settle()
    if is_granted:
        budget.release(10)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    if not is_granted:
        budget.release(10)
    await second
    assert budget.used_bytes == 2


def test_restart_limit_counts_within_its_window() -> None:
    limit = RestartLimit(3, 600.0)
    assert [limit.admit(now_s) for now_s in (0, 1, 2, 3, 600)] == [True, True, True, False, False]
    assert limit.admit(600.5)
