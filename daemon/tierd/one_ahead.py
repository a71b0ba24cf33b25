"""one_ahead: the items of an async generator, of which the next one is made while the caller works on one."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from tierd.tasks import drop_task, wait_all

T = TypeVar("T")


async def one_ahead(items: AsyncGenerator[T, None], *, name: str) -> AsyncGenerator[T, None]:
    """Yield the items of ``items``, which is closed at the end; a failure comes behind the items before it.

    Args:
        items: makes the items.
        name: of the task that makes them.
    """
    ahead = asyncio.create_task(_next(items), name=name)
    try:
        while found := await ahead:
            ahead = asyncio.create_task(_next(items), name=name)
            yield found[0]
    finally:
        drop_task(ahead)  # the caller has stopped for another reason than its failure, or was told
        try:
            await wait_all([ahead])
        finally:
            await items.aclose()


async def _next(items: AsyncGenerator[T, None]) -> "tuple[T] | tuple[()]":
    """Return the next item; nothing at the end."""
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return ()
