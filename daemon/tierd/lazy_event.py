"""LazyEvent: an ``asyncio.Event`` for thousands of owners, most of which no task ever waits for."""

import asyncio
from typing import Literal


class LazyEvent(asyncio.Event):
    """Event that has a queue only while a task waits; one of asyncio's own has 0.8 kB for it from the beginning.

    For one event loop, as every event of asyncio.
    """

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        """Begin unset, without a waiting task. The base's own queue is not made: nothing here uses it."""
        self._is_set = False
        self._waiting: list[asyncio.Future[None]] | None = None

    def __repr__(self) -> str:
        return f"<LazyEvent {'set' if self._is_set else 'unset'}, waiting: {len(self._waiting or ())}>"

    def is_set(self) -> bool:
        """Return True if the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event; every task that waits goes on, also if the event is cleared before its turn."""
        if self._is_set:
            return
        self._is_set = True
        for waiter in self._waiting or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Unset the event."""
        self._is_set = False

    async def wait(self) -> Literal[True]:
        """Return when the event is set, at once if it is. A cancellation leaves nothing behind."""
        if self._is_set:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting = self._waiting or []
        waiting.append(waiter)
        try:
            await waiter
        finally:
            waiting.remove(waiter)
            if not waiting:
                self._waiting = None
        return True
