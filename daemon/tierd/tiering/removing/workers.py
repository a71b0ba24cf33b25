"""Work on many segments: begun in order, several at a time, and no further after a failure."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


async def in_order(
    items: Sequence[_T], do: Callable[[_T], Awaitable[None]], *, slots: asyncio.Semaphore, width: int
) -> None:
    """Call ``do`` for every item, at most ``width`` at once, each within one of ``slots``.

    After the first failure no further call is begun, calls under way run to their end, and then the failure is
    raised. A cancellation cancels the calls under way.
    """
    failures: list[Exception] = []
    left = iter(items)
    async with asyncio.TaskGroup() as group:
        for number in range(min(width, len(items))):
            group.create_task(_work(left, do, slots, failures), name=f"delete segments {number}")
    if failures:
        raise failures[0]


async def _work(
    left: Iterable[_T], do: Callable[[_T], Awaitable[None]], slots: asyncio.Semaphore, failures: list[Exception]
) -> None:
    for item in left:
        async with slots:
            if failures:
                return
            try:
                await do(item)
            except Exception as error:  # noqa: BLE001 - raised by ``in_order``, once the others have ended
                failures.append(error)
                return
