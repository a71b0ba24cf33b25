"""Time as an argument, so that a test can set it."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Protocol


class Clock(Protocol):
    """Time as the daemon sees it. Tests pass a fake whose ``sleep`` moves the time on."""

    def now_ms(self) -> int:
        """Return wall-clock time, milliseconds since the epoch; it may step."""

    def monotonic_s(self) -> float:
        """Return a time in seconds that never goes back; only differences mean anything."""

    async def sleep(self, delay_s: float) -> None:
        """Return after ``delay_s`` seconds; a cancellation leaves nothing behind."""


class SystemClock:
    """The clock of this host."""

    def now_ms(self) -> int:
        """Return wall-clock time, milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary start."""
        return time.monotonic()

    def sleep(self, delay_s: float) -> Coroutine[object, object, None]:
        """Return a sleep on the running event loop."""
        return asyncio.sleep(delay_s)  # itself, without a frame around it for each of thousands of rests


async def wait_for_event(event: asyncio.Event, clock: Clock, timeout_s: float) -> bool:
    """Wait until ``event`` is set, for ``timeout_s`` seconds at most; return True if it is set.

    A cancellation leaves nothing behind.
    """
    waits = (asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(timeout_s)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    return event.is_set()
