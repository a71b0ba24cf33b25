"""QuotaGate: no segment is uploaded while the broker copies faster than it may (KIP-956; remote-tiering 11.2)."""

import asyncio
from collections.abc import Callable
from typing import Final

from tierd.clock import Clock, wait_for_event
from tierd.tiering.capacity.rate_quota import RateQuota
from tierd.tiering.recorder import TieringRecorder

_LONGEST_WAIT_S = 1.0  # then it is asked again, for the limit may have changed


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
