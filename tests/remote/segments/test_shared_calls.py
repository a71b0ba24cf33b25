"""Calls with several waiting callers: made once, and ended with the last caller."""

import asyncio

import pytest

from tests.fakes.eventually import eventually
from tierd.remote.segments.segment_reader import SharedCalls


class Held:
    """A call that ends when a test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.answer = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error:
            raise self.error
        return self.begun


async def begun(held: Held, calls: SharedCalls[int], waiters: int) -> list["asyncio.Task[int]"]:
    tasks = [asyncio.create_task(calls.ask("one", held)) for _ in range(waiters)]
    await eventually(lambda: held.begun > 0, what="the call")
    return tasks


async def test_callers_at_one_time_share_an_answer_and_a_later_caller_asks_anew() -> None:
    held, calls = Held(), SharedCalls[int]()
    waiting = await begun(held, calls, 3)
    held.answer.set()
    assert await asyncio.gather(*waiting) == [1, 1, 1]
    assert await calls.ask("one", held) == 2


async def test_failure_reaches_all_callers_and_is_not_remembered() -> None:
    held, calls = Held(), SharedCalls[int]()
    waiting = await begun(held, calls, 2)
    held.error = OSError("broken")
    held.answer.set()
    for task in waiting:
        with pytest.raises(OSError, match="broken"):
            await task
    held.error = None
    assert await calls.ask("one", held) == 2


async def test_cancelled_caller_leaves_the_call_to_the_others() -> None:
    held, calls = Held(), SharedCalls[int]()
    first, second = await begun(held, calls, 2)
    first.cancel()
    await asyncio.wait({first})
    assert held.cancelled == 0
    held.answer.set()
    assert await second == 1


async def test_cancellation_of_the_last_caller_ends_the_call() -> None:
    held, calls = Held(), SharedCalls[int]()
    waiting = await begun(held, calls, 2)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert held.cancelled == 1
    held.answer.set()
    assert await calls.ask("one", held) == 2


async def test_calls_of_different_subjects_are_not_shared() -> None:
    held, calls = Held(), SharedCalls[int]()
    held.answer.set()
    await asyncio.gather(calls.ask("one", held), calls.ask("other", held))
    assert held.begun == 2
