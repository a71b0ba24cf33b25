"""run_to_end: work that a cancellation of its caller does not cut in two."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_end(work: Coroutine[Any, Any, T], *, name: str) -> T:
    """Run ``work`` to its end, then return its result or raise its error.

    A cancellation of the caller waits for the end of the work and is raised then.
    """
    task = asyncio.create_task(work, name=name)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation from task.exception()
    return task.result()
