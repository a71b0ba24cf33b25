"""LateReads: reads without a caller, kept for the next caller that asks for the same.

Their callers stopped waiting (KIP-1018), or have not come yet.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from tierd.clock import Clock
from tierd.model import IsolationLevel
from tierd.tasks import end_tasks
from tierd.tiering.reading.fetch_result import FetchResult
from tierd.tiering.reading.fetch_task import FetchTask

_KEPT_S = 30.0


class LatePlace(NamedTuple):
    """Arguments of a read: a later read with the same arguments takes its result."""

    task: FetchTask
    offset: int
    max_bytes: int
    isolation: IsolationLevel
    at_least_one: bool


@dataclass(slots=True)
class _Late:
    reading: "asyncio.Task[FetchResult]"
    since_s: float


class LateReads:
    """Reads that go on without a caller, the oldest first. The tasks belong to the ``FetchService``.

    A store may take longer than any caller waits. Without a cache of chunks, each attempt would begin anew and none
    would end.
    """

    def __init__(self, *, capacity: int, clock: Clock, kept_s: float = _KEPT_S) -> None:
        """Keep at most ``capacity`` reads, each for ``kept_s``."""
        self._capacity = capacity
        self._clock = clock
        self._kept_s = kept_s
        self._late: OrderedDict[LatePlace, _Late] = OrderedDict()
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._late)

    def __contains__(self, place: LatePlace) -> bool:
        return place in self._late

    @property
    def max_bytes(self) -> int:
        """Return the bound on the bytes of all reads together, as their callers asked for them."""
        return sum(place.max_bytes for place in self._late)

    def take(self, place: LatePlace) -> "asyncio.Task[FetchResult] | None":
        """Return the read of that place, running or done, or None. It is the caller's from now on."""
        late = self._late.pop(place, None)
        return None if late is None else late.reading

    def keep(self, place: LatePlace, reading: "asyncio.Task[FetchResult]") -> None:
        """Keep a read that no caller waits for now; the oldest one beyond the capacity is forgotten."""
        self._late[place] = _Late(reading, self._clock.monotonic_s())
        self._late.move_to_end(place)
        if len(self._late) > self._capacity:
            self._late.popitem(last=False)
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._sweep(), name="forget late remote reads")

    async def close(self) -> None:
        """Forget all reads."""
        self._late.clear()
        if self._sweeper is not None:
            await end_tasks([self._sweeper])

    async def _sweep(self) -> None:
        while self._late:
            place, oldest = next(iter(self._late.items()))
            due_s = oldest.since_s + self._kept_s - self._clock.monotonic_s()
            if due_s > 0:
                await self._clock.sleep(due_s)
            else:
                del self._late[place]
