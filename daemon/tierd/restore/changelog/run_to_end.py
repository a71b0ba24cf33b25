"""run_to_end: work that a cancellation of its caller does not cut in two."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tierd.tasks import wait_all

T = TypeVar("T")


async def run_to_end(work: Coroutine[Any, Any, T], *, name: str) -> T:
    """Run ``work`` to its end, then return its result or raise its error.

    A cancellation of the caller waits for the end of the work and is raised then.
    """
    task = asyncio.create_task(work, name=name)
    try:
        await wait_all([task])
    except asyncio.CancelledError as cancellation:
        raise cancellation from task.exception()
    return task.result()
