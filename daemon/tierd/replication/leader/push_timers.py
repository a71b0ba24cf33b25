"""``PushTimers``: the next times at which slots and lanes need attention, without work for those that rest."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """Owner of a timer.

    Attributes:
        timer_at_s: time of the timer; infinite without one. Only ``PushTimers`` sets it.
    """

    timer_at_s: float


TimedOwner = TypeVar("TimedOwner", bound=Timed)


class PushTimers(Generic[TimedOwner]):
    """Timers of slots or lanes, one for each.

    A timer only moves forward in time when it fires: its owner then says when to look again. An event that makes a
    timer needless leaves it alone, so an event costs nothing here as long as an earlier timer is set.
    """

    def __init__(self) -> None:
        """Begin without a timer."""
        self._heap: list[tuple[float, int, TimedOwner]] = []
        self._numbers = count()

    def schedule(self, owner: TimedOwner, at_s: float) -> None:
        """Fire at ``at_s``, unless the timer of ``owner`` fires before."""
        if at_s < owner.timer_at_s:
            owner.timer_at_s = at_s
            heappush(self._heap, (at_s, next(self._numbers), owner))

    def cancel(self, owner: TimedOwner) -> None:
        """Forget the timer of ``owner``."""
        owner.timer_at_s = float("inf")

    def due(self, now_s: float) -> Iterator[TimedOwner]:
        """Yield the owners of the timers that fire, in order; each may schedule the next one."""
        while self.next_s <= now_s:
            _, _, owner = heappop(self._heap)
            owner.timer_at_s = float("inf")
            yield owner

    @property
    def next_s(self) -> float:
        """Return the time of the next timer; infinite for none."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].timer_at_s:
            heappop(heap)
        return heap[0][0] if heap else float("inf")
