"""Alarms: one deadline per name, and one task that waits for the earliest."""

import asyncio
import heapq
import math

from tierd.clock import Clock


class Alarms:
    """Deadlines on the monotonic clock. A deadline may be moved forward; one that is moved back rings too early."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._is_earlier = asyncio.Event()

    def set(self, name: str, deadline_s: float) -> None:
        """Ring for ``name`` at ``deadline_s`` at the latest; infinite deadlines do not ring."""
        if deadline_s == math.inf or deadline_s >= self._deadlines.get(name, math.inf):
            return
        self._deadlines[name] = deadline_s
        if not self._heap or deadline_s < self._heap[0][0]:
            self._is_earlier.set()
        heapq.heappush(self._heap, (deadline_s, name))

    def take_due(self) -> list[str]:
        """Return the names whose deadlines have come, and forget these deadlines."""
        due: list[str] = []
        now_s = self._clock.monotonic_s()
        while self._heap and self._heap[0][0] <= now_s:
            deadline_s, name = heapq.heappop(self._heap)
            if self._deadlines.get(name) == deadline_s:
                del self._deadlines[name]
                due.append(name)
        return due

    async def wait(self) -> None:
        """Wait until a deadline has come, or may have."""
        self._is_earlier.clear()
        waits = {asyncio.ensure_future(self._wait_for_earlier())}
        if self._heap:
            delay_s = max(0.0, self._heap[0][0] - self._clock.monotonic_s())
            waits.add(asyncio.ensure_future(self._clock.sleep(delay_s)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _wait_for_earlier(self) -> None:
        await self._is_earlier.wait()
