"""The end of tasks that their owner no longer wants."""

import asyncio
from collections.abc import Iterable
from typing import Any


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until all have ended; what they return or raise is left to their owner.

    A cancellation of the caller leaves tasks that are cancelled, and may not have ended yet.
    """
    if found := set(tasks):
        for task in found:
            task.cancel()
        await asyncio.wait(found)


def raise_if_cancelled() -> None:
    """Raise the cancellation of this task that a ``TaskGroup`` has replaced with the errors of its tasks.

    Python 3.11 raises these alone where both come at once; a caller that handles them and goes on would never end.

    Raises:
        CancelledError: the task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
