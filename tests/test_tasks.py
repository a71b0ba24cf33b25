"""The end of tasks."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator
from functools import partial

import pytest

from tests.fakes.left_tasks import nothing_left
from tierd.tasks import (
    drop_task,
    end_tasks,
    first_error,
    in_thread,
    one_ahead,
    raise_if_cancelled,
    run_to_end,
    together,
    wait_all,
)
from tierd.testing import cancel_at


async def slow_to_end(*, fails: bool = False) -> str:
    """Take some turns of the loop to end once it is cancelled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        for _ in range(3):
            await asyncio.sleep(0)
        if fails:
            raise OSError("at the end") from None
        raise
    return "never"


async def test_tasks_have_ended_whatever_they_do_with_the_cancellation() -> None:
    async def refuse() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "in the end"
        raise AssertionError("nobody sets the event")

    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("at the end")

    plain = asyncio.create_task(asyncio.sleep(3600))
    refusing, failing = asyncio.create_task(refuse()), asyncio.create_task(fail())
    await asyncio.sleep(0)
    await end_tasks([plain, refusing, failing])
    assert plain.cancelled()
    assert refusing.result() == "in the end"
    assert isinstance(failing.exception(), OSError)


async def test_no_task_is_no_wait() -> None:
    await end_tasks([])


async def test_cancellation_that_errors_of_a_group_have_replaced_is_raised() -> None:
    broken, begun = asyncio.Event(), asyncio.Event()

    async def breaks() -> None:
        begun.set()
        await broken.wait()
        raise OSError("broken")

    async def goes_on() -> None:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(breaks())
        raise_if_cancelled()

    task = asyncio.create_task(goes_on())
    await begun.wait()
    broken.set()
    task.cancel()

    await asyncio.wait([task])
    assert task.cancelled()


async def test_task_that_is_not_cancelled_goes_on() -> None:
    raise_if_cancelled()

    await wait_all([])


async def test_cancellation_at_any_await_is_raised_when_the_tasks_have_ended() -> None:
    suspension, was_cancelled = 0, True
    while was_cancelled:
        suspension += 1
        tasks = [asyncio.create_task(slow_to_end()) for _ in range(3)]
        await asyncio.sleep(0)
        was_cancelled = await cancel_at(suspension, lambda ending=tasks: end_tasks(ending))  # type: ignore[misc]
        assert all(task.cancelled() for task in tasks)
    assert suspension > 1


async def test_second_cancellation_is_no_way_out_either() -> None:
    slow = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end_tasks([slow]))
    await asyncio.sleep(0)
    for _ in range(2):
        ending.cancel()
        await asyncio.sleep(0)
        assert not ending.done()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert slow.cancelled()


async def test_error_of_a_dropped_task_is_reported_by_nobody() -> None:
    async def fail() -> None:
        raise OSError("before")

    with nothing_left():
        dropped = [asyncio.create_task(fail()), asyncio.create_task(slow_to_end(fails=True))]
        await asyncio.sleep(0)
        for task in dropped:
            drop_task(task)
        await wait_all(dropped)
        del dropped, task


async def test_items_one_ahead_that_are_closed_and_cancelled_at_any_await_are_closed_to_their_end() -> None:
    is_closed = False

    async def items() -> AsyncGenerator[int, None]:
        nonlocal is_closed
        try:
            yield 1
            await slow_to_end(fails=True)
        finally:
            is_closed = True

    suspension, was_cancelled = 0, True
    while was_cancelled:
        suspension += 1
        is_closed = False
        with nothing_left():
            ahead = one_ahead(items(), name="ahead")
            assert await anext(ahead) == 1
            await asyncio.sleep(0)
            was_cancelled = await cancel_at(suspension, ahead.aclose)
            assert is_closed
            del ahead
    assert suspension > 1


async def test_result_and_error_of_the_work_are_passed_on() -> None:
    async def fail() -> None:
        raise ValueError("no")

    assert await run_to_end(asyncio.sleep(0, "done"), name="work") == "done"
    with pytest.raises(ValueError, match="no"):
        await run_to_end(fail(), name="work")


@pytest.mark.parametrize("fails", [False, True])
async def test_cancellation_waits_for_the_end_of_the_work(*, fails: bool) -> None:
    go_on = asyncio.Event()
    ended = []

    async def work() -> None:
        await go_on.wait()
        ended.append("work")
        if fails:
            raise ValueError("no")

    caller = asyncio.create_task(run_to_end(work(), name="work"))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == ["work"]


async def test_work_in_a_thread_has_ended_when_the_cancellation_of_its_caller_is_raised() -> None:
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    ended = []

    def work(result: str, *, then: str) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(60)
        ended.append(result)
        raise OSError(then)

    caller = asyncio.create_task(in_thread(work, "work", then="no room"))
    await begun.wait()
    for _ in range(2):
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == ["work"]


def test_first_error_of_a_group_is_found_at_any_depth() -> None:
    first = OSError("first")
    assert first_error(ExceptionGroup("outer", [ExceptionGroup("inner", [first]), OSError("second")])) is first


async def test_results_of_works_come_in_their_order_and_no_more_run_than_allowed() -> None:
    running: set[int] = set()
    most = 0

    async def work(number: int) -> int:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        for _ in range(9 - number):  # the later ones end first
            await asyncio.sleep(0)
        running.discard(number)
        return number

    works = {f"work {number}": partial(work, number) for number in range(8)}
    assert await together(works, at_once=3) == list(range(8))
    assert most == 3
    assert await together(works) == list(range(8))
    assert most == 8
    assert await together({}) == []


async def test_first_failure_of_works_is_raised_alone_once_the_others_have_ended() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waiting")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError("the disk")

    async def never() -> None:
        raise AssertionError("no place came free")

    with pytest.raises(OSError, match="the disk"):
        await together({"a": wait, "b": fail, "c": never}, at_once=2)
    assert ended == ["waiting"]


async def test_cancellation_of_the_caller_ends_all_works() -> None:
    with nothing_left():
        calling = asyncio.create_task(together({"a": slow_to_end, "b": slow_to_end}))
        for _ in range(3):
            await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
