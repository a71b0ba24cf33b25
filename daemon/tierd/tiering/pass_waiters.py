"""PassWaiters: who waits for a pass of a task that had not begun yet when they asked."""

import asyncio


class PassWaiters:
    """Futures that are done when a pass has ended, well or not."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def next_pass(self) -> "asyncio.Future[None]":
        """Done when a pass has ended that had not begun at this moment, or when there will be none."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def begin(self) -> "list[asyncio.Future[None]]":
        """A pass begins: take those who wait for it; ``release`` them at its end."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self) -> None:
        """There will be no pass any more."""
        release(self.begin())


def release(waiting: "list[asyncio.Future[None]]") -> None:
    """Tell those who waited for the pass that it has ended."""
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
