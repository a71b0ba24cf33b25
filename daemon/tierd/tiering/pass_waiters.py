"""PassWaiters: futures for callers that wait for a pass of a task which begins after their call."""

import asyncio


class PassWaiters:
    """Futures that are done when a pass has ended, well or not."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def next_pass(self) -> "asyncio.Future[None]":
        """Return a future that is done when the next pass that begins has ended, or when there will be none."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def begin(self) -> "list[asyncio.Future[None]]":
        """Begin a pass: return the futures that wait for it, which the caller gives to ``release`` at its end."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self) -> None:
        """Release all futures: there will be no pass any more."""
        release(self.begin())


def release(waiting: "list[asyncio.Future[None]]") -> None:
    """Mark the futures as done: the pass that they wait for has ended."""
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
