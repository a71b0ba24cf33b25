"""The end of tasks that their owner no longer wants. A cancellation of the owner leaves none of them behind."""

import asyncio
from collections.abc import Iterable
from typing import Any


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until all have ended; what they return or raise is left to their owner.

    A cancellation of the caller is raised when they have ended.
    """
    found = set(tasks)
    for task in found:
        task.cancel()
    await wait_all(found)


def drop_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task whose result nobody wants: what it returns or raises is dropped. Its owner waits for its end."""
    task.add_done_callback(retrieve)
    task.cancel()


async def wait_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Wait until all ``tasks`` have ended; a cancellation of the caller is raised only then, and reaches none of them.

    For tasks that end soon, such as cancelled ones.
    """
    waiting = set(tasks)
    cancellation: asyncio.CancelledError | None = None
    while waiting:
        try:
            _, waiting = await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            cancellation = error
            waiting = {task for task in waiting if not task.done()}
    if cancellation is not None:
        raise cancellation


def retrieve(task: asyncio.Future[Any]) -> None:
    """Take the error of a task that has ended: perhaps no caller waits for it, and asyncio logs one left behind."""
    if not task.cancelled():
        task.exception()


def raise_if_cancelled() -> None:
    """Raise the cancellation of this task that a ``TaskGroup`` has replaced with the errors of its tasks.

    Python 3.11 raises these alone where both come at once; a caller that handles them and goes on would never end.

    Raises:
        CancelledError: the task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
