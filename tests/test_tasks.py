"""The end of tasks."""

import asyncio
import contextlib

from tierd.tasks import end_tasks, raise_if_cancelled


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
