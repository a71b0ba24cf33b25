"""A coroutine that is cancelled at a wait, and once more at the next wait, which belongs to its clean-up."""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator


@types.coroutine
def _driven(call: Awaitable[object], suspension: int) -> Generator[object, object, None]:
    steps = call.__await__()
    task = asyncio.current_task()
    assert task is not None
    waits = 0
    try:
        waited_for = next(steps)
        while True:
            waits += 1
            if waits in {suspension, suspension + 1}:
                task.cancel()
            try:
                answer = yield waited_for
            except BaseException as error:  # noqa: BLE001  whatever it is, it belongs to the driven coroutine
                waited_for = steps.throw(error)
            else:
                waited_for = steps.send(answer)
    except StopIteration:
        return


async def cancel_twice_at(suspension: int, call: Callable[[], Coroutine[object, object, object]]) -> bool:
    """Run ``call`` in a task that is cancelled at its n-th wait and at the one after it; False when it ended before.

    When this returns, the task has ended.
    """

    async def run() -> None:
        await _driven(call(), suspension)

    task = asyncio.ensure_future(run())
    await asyncio.wait({task})
    if task.cancelled():
        return True
    task.result()
    return False
