"""The end of tasks."""

import asyncio

from tierd.tasks import end_tasks


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
