"""Turns on the event loop."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tierd.serve.kafka.loop_turns import PIECE_ITEMS, LoopTurns


@pytest.fixture
async def aside() -> AsyncIterator[LoopTurns]:
    with ThreadPoolExecutor(1) as executor:
        yield LoopTurns(executor)


async def _begun(turns: LoopTurns, owners: str) -> tuple[list[str], list[asyncio.Task[None]]]:
    """Let clients wait for turns, one after the other; return those that have had theirs, and the tasks."""
    had: list[str] = []

    async def take(owner: str) -> None:
        await turns.take(owner)
        had.append(owner)

    tasks = [asyncio.create_task(take(owner)) for owner in owners]
    await asyncio.sleep(0)
    return had, tasks


async def test_round_has_so_many_turns_and_no_more() -> None:
    had, tasks = await _begun(LoopTurns(per_round=3), "a" * 10)
    assert len(had) == 3
    seen = [len(had)]
    while len(had) < 10:
        await asyncio.sleep(0)
        seen.append(len(had))
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 3
    await asyncio.gather(*tasks)


async def test_addresses_alternate_however_many_clients_one_of_them_has() -> None:
    had, tasks = await _begun(LoopTurns(per_round=1), "a" * 50 + "b")
    await asyncio.gather(*tasks)
    assert had.index("b") <= 2


async def test_client_that_goes_away_while_it_waits_costs_no_turn() -> None:
    turns = LoopTurns(per_round=1)
    had, tasks = await _begun(turns, "abc")
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert had == ["a", "c"]
    await turns.take("d")


async def test_long_loop_gives_up_its_turn_after_each_piece() -> None:
    turns, rounds = LoopTurns(per_round=1).of("a"), 0

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    counting = asyncio.create_task(count_rounds())
    assert [item async for item in turns.pieces(range(10 * PIECE_ITEMS))] == list(range(10 * PIECE_ITEMS))
    assert rounds >= 8
    counting.cancel()


async def test_large_work_is_done_in_a_thread_and_small_work_at_once(aside: LoopTurns) -> None:
    turns = aside.of("a")
    assert await turns.aside(PIECE_ITEMS, threading.get_ident) == threading.get_ident()
    assert await turns.aside(PIECE_ITEMS + 1, threading.get_ident) != threading.get_ident()


async def test_error_of_large_work_is_raised(aside: LoopTurns) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await aside.of("a").aside(PIECE_ITEMS + 1, int, "x")


async def test_large_work_of_addresses_alternates(aside: LoopTurns) -> None:
    done: list[str] = []
    tasks = [asyncio.create_task(aside.of(owner).aside(1000, done.append, owner)) for owner in "aaaaaab"]
    await asyncio.gather(*tasks)
    assert done.index("b") <= 2


async def test_large_work_goes_on_when_a_client_goes_away_before_its_turn_or_in_it(aside: LoopTurns) -> None:
    may_end = threading.Event()
    tasks = [asyncio.create_task(aside.of(owner).aside(1000, may_end.wait)) for owner in "abcd"]
    await asyncio.sleep(0)
    for gone in (tasks[1], tasks[0]):
        gone.cancel()
    may_end.set()
    assert await asyncio.gather(*tasks[2:]) == [True, True]
    assert await aside.of("e").aside(1000, may_end.is_set)
