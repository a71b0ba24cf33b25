"""Cancelling at every await: run a coroutine again and again, each time cancelled one suspension later."""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TypeVar

_T = TypeVar("_T")


@types.coroutine
def _cancelled_at(call: Awaitable[_T], suspension: int, times: int) -> Generator[object, object, _T]:
    """Drive ``call``; at ``times`` successive waits from the ``suspension``-th (from 1) on, cancel the present task."""
    steps = call.__await__()
    task = asyncio.current_task()
    assert task is not None
    waits = 0
    try:
        waited_for = next(steps)
        while True:
            waits += 1
            if suspension <= waits < suspension + times:
                task.cancel()
            try:
                answer = yield waited_for
            except BaseException as error:  # noqa: BLE001  whatever it is, it belongs to the driven coroutine
                waited_for = steps.throw(error)
            else:
                waited_for = steps.send(answer)
    except StopIteration as end:
        result: _T = end.value
        return result


async def cancel_at(suspension: int, call: Callable[[], Coroutine[object, object, object]], *, times: int = 1) -> bool:
    """Run ``call`` in a task that is cancelled at its n-th suspension; False when it ended before that.

    The task is awaited: its cleanup is over when this returns.

    Args:
        suspension: counted from 1.
        call: makes the coroutine.
        times: cancellations, at successive suspensions; the later ones meet the cleanup.
    """

    async def run() -> None:
        await _cancelled_at(call(), suspension, times)

    task = asyncio.ensure_future(run())
    await asyncio.wait({task})
    if task.cancelled():
        return True
    task.result()
    return False
