"""Capacity: bounds what the tasks of this broker do at once, and how fast they copy (KIP-956; remote-tiering 11).

::

    now - 11 windows                                   now
    ├──────┼──────┼──────┼ ... ┼──────┼──────┼──────────┤
    forgotten │<------ span: elapsed since the oldest ->│   rate = recorded / span, span at least one window

Copy and fetch each have one ``RateQuota``, for the whole broker. A quota decides nothing by itself and never blocks.
Kafka: RLMQuotaManager, SimpleRate.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tierd.clock import Clock, wait_for_event
from tierd.tiering.recorder import TieringRecorder

if TYPE_CHECKING:
    from tierd.config import CopySettings  # the schema of the whole file, which a command that only reads does not need

UNLIMITED = 2**63 - 1
DEFAULT_WINDOWS = 11
DEFAULT_WINDOW_S = 1.0
_LONGEST_WAIT_S = 1.0  # at the gate; then the quota is asked again, for the limit may have changed


class Slots(asyncio.Semaphore):
    """Limit of tasks at the same work; waiting tasks are served in order."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._size = size
        self._taken = 0
        self._surplus = 0  # slots in use that a smaller size has no room for; they go when they are released

    @property
    def size(self) -> int:
        """Return the number of slots, once the surplus of a larger size was released."""
        return self._size

    def resize(self, size: int) -> None:
        """Have ``size`` slots from now on; a task keeps the slot that it has.

        Raises:
            ValueError: ``size`` is below 1.
        """
        if size < 1:
            raise ValueError(f"{size} slots admit no task")
        growth, self._size = size - self._size, size
        if growth < 0:
            self._surplus -= growth
        for _ in range(growth):
            self._give()

    @property
    def idle_ratio(self) -> float:
        """Return the free part of the slots, from 0 to 1."""
        return max(0.0, 1 - self._taken / self._size)

    async def acquire(self) -> Literal[True]:
        """Wait for a slot and take it."""
        await super().acquire()
        self._taken += 1
        return True

    def release(self) -> None:
        """Release a slot."""
        self._taken -= 1
        self._give()

    def _give(self) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            super().release()


class RateQuota:
    """Rate over the last windows against a limit, which may change at any time and then applies to them, too."""

    def __init__(
        self, limit: float = UNLIMITED, *, windows: int = DEFAULT_WINDOWS, window_s: float = DEFAULT_WINDOW_S
    ) -> None:
        """Remember ``windows`` of ``window_s`` seconds, the current one included; ``limit`` is in bytes per second.

        Raises:
            ValueError: a limit or a window that is not positive.
        """
        if windows < 1 or window_s <= 0:
            raise ValueError(f"{windows} windows of {window_s} s are no history")
        self.windows = windows
        self.window_s = window_s
        self._recorded: deque[list[float]] = deque()  # [begin of the window, bytes], oldest first
        self.set_limit(limit)

    @property
    def limit(self) -> float:
        """Return the limit in bytes per second."""
        return self._limit

    def set_limit(self, limit: float) -> None:
        """Compare the same history with another limit from now on.

        Raises:
            ValueError: the limit is not positive.
        """
        if limit <= 0:
            raise ValueError(f"a quota of {limit} bytes per second lets nothing through")
        self._limit = limit

    def record(self, size_bytes: int, now_s: float) -> None:
        """Count ``size_bytes`` at ``now_s``, monotonic; nothing is checked."""
        self._forget(now_s)
        if not self._recorded or now_s - self._recorded[-1][0] >= self.window_s:
            self._recorded.append([now_s, 0])
        self._recorded[-1][1] += size_bytes

    def rate(self, now_s: float) -> float:
        """Return the observed rate in bytes per second."""
        total, span_s = self._observed(now_s)
        return total / span_s

    def throttle_ms(self, now_s: float) -> int:
        """Return the wait until the rate is at the limit again; 0 when it is not above it."""
        total, span_s = self._observed(now_s)
        return max(0, round((total / self._limit - span_s) * 1000))

    def _observed(self, now_s: float) -> tuple[float, float]:
        self._forget(now_s)
        if not self._recorded:
            return 0, self.window_s
        span_s = max(now_s - self._recorded[0][0], self.window_s)
        return sum(size for _, size in self._recorded), span_s

    def _forget(self, now_s: float) -> None:
        while self._recorded and now_s - self._recorded[0][0] >= self.windows * self.window_s:
            self._recorded.popleft()


class QuotaGate:
    """One gate for all partitions, passed one after the other, in the order of arrival.

    A segment passes as a whole, so that a large one may overshoot; what is under way is shaped by the byte rate of the
    remote storage.

    Attributes:
        quota: the quota; a new limit holds from the next check on.
    """

    def __init__(self, quota: RateQuota, *, recorder: TieringRecorder, clock: Clock) -> None:
        self.quota: Final = quota
        self._recorder = recorder
        self._clock = clock
        self._turn = asyncio.Lock()  # its waiters are served in order
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Close the gate: calls that wait end at once, so that tierd can stop."""
        self._closed.set()

    async def admit(self, size_bytes: int, *, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Wait until a segment of ``size_bytes`` may be uploaded, and charge it.

        Cancelled, it has charged nothing, and the next in line is asked.

        Args:
            size_bytes: the size of the segment's log.
            is_wanted: asked before it is charged, and once a second meanwhile: nothing is awaited between its last
                yes and the return.

        Returns:
            False, uncharged, once it is closed or not wanted any more.
        """
        async with self._turn:
            while not self._closed.is_set() and is_wanted():
                throttle_ms = self.quota.throttle_ms(self._clock.monotonic_s())
                if throttle_ms == 0:
                    self.quota.record(size_bytes, self._clock.monotonic_s())
                    return True
                self._recorder.copy_throttled(throttle_ms)
                await wait_for_event(self._closed, self._clock, min(throttle_ms / 1000, _LONGEST_WAIT_S))
            return False


@dataclass(frozen=True, slots=True)
class ManagerStatistics:
    """Use of the capacity at one moment.

    Attributes:
        copy_idle_ratio: part of the copy slots that are free, from 0 to 1.
        delete_idle_ratio: part of the slots for deletions that are free, from 0 to 1.
        copy_bytes_per_second: the rate of copies, as the copy quota sees it.
    """

    copy_idle_ratio: float
    delete_idle_ratio: float
    copy_bytes_per_second: float


class Capacity:
    """Slots for copies and for deletions, and the quota of copies with its gate."""

    def __init__(
        self, settings: "CopySettings", *, copies: Slots, deletions: Slots, recorder: TieringRecorder, clock: Clock
    ) -> None:
        self.copies = copies
        self.deletions = deletions
        self.quota = RateQuota(
            settings.max_bytes_per_second or UNLIMITED,
            windows=settings.quota_windows,
            window_s=settings.quota_window_s,
        )
        self.gate = QuotaGate(self.quota, recorder=recorder, clock=clock)
        self._clock = clock

    def resize(self, *, copies: int, deletions: int) -> None:
        """Bound the segments copied and deleted at once from now on; segments under way continue."""
        self.copies.resize(copies)
        self.deletions.resize(deletions)

    def statistics(self) -> ManagerStatistics:
        """Return the use of the capacity at this moment."""
        return ManagerStatistics(
            copy_idle_ratio=self.copies.idle_ratio,
            delete_idle_ratio=self.deletions.idle_ratio,
            copy_bytes_per_second=self.quota.rate(self._clock.monotonic_s()),
        )
