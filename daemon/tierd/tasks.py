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
