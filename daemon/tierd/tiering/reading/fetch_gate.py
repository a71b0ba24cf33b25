"""FetchGate: the bound of remote reads that run and wait, and the fetch quota (remote-tiering 11.3 and 14.1)."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tierd.clock import Clock
from tierd.errors import RemoteStorageError, RetriableRemoteStorageError, TierErrorCode
from tierd.tiering.capacity import RateQuota


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """Counts of remote reads at one moment.

    Attributes:
        running: have a place.
        pending: wait for one.
        rejected: were refused since the start, for too many waited.
        bytes_per_second: the rate of remote reads, as the fetch quota sees it.
    """

    running: int = 0
    pending: int = 0
    rejected: int = 0
    bytes_per_second: float = 0.0


class FetchGate:
    """Places in order of arrival, for all partitions together."""

    def __init__(self, *, concurrency: int, max_pending: int, quota: RateQuota, clock: Clock) -> None:
        """Let ``concurrency`` reads run and ``max_pending`` more wait, and count their bytes against ``quota``."""
        self._concurrency = concurrency
        self._max_pending = max_pending
        self._quota = quota
        self._clock = clock
        self._running = 0
        self._pending: deque[asyncio.Future[None]] = deque()
        self._rejected = 0
        self._is_closed = False

    def statistics(self) -> GateStatistics:
        """Return the counts of reads that run, wait and were refused, and the rate that the quota sees."""
        rate = self._quota.rate(self._clock.monotonic_s())
        return GateStatistics(self._running, len(self._pending), self._rejected, rate)

    @property
    def has_room(self) -> bool:
        """Return True if less than half of the places are taken, so that a read in advance delays no other."""
        return self._running < self._concurrency / 2

    def throttle_ms(self) -> int:
        """Return the time for which the quota delays remote reads, 0 for none; asked when a read is submitted."""
        return self._quota.throttle_ms(self._clock.monotonic_s())

    def record(self, size_bytes: int) -> None:
        """Count what a read returned, when it has finished; 0 for one that failed."""
        self._quota.record(size_bytes, self._clock.monotonic_s())

    @asynccontextmanager
    async def place(self, what: str) -> AsyncIterator[None]:
        """Wait for a place and keep it for the body. A cancellation while waiting leaves the queue shorter.

        Raises:
            RetriableRemoteStorageError: too many wait already; nothing was begun.
            RemoteStorageError: the gate was closed.
        """
        await self._enter(what)
        try:
            yield
        finally:
            self._leave()

    def close(self) -> None:
        """Refuse the reads that wait and every later one; reads that run continue."""
        self._is_closed = True
        while self._pending:
            waiting = self._pending.popleft()
            if not waiting.done():
                waiting.set_exception(_closed())

    async def _enter(self, what: str) -> None:
        if self._is_closed:
            raise _closed()
        if self._running < self._concurrency:
            self._running += 1
            return
        if len(self._pending) >= self._max_pending:
            self._rejected += 1
            raise RetriableRemoteStorageError(
                f"{what}: {self._running} remote reads run and {len(self._pending)} wait already",
                remedy="read again later, or raise fetch.concurrency and fetch.max_pending",
                code=TierErrorCode.READER_BUSY,
            )
        place = asyncio.get_running_loop().create_future()
        self._pending.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._leave()  # the place was given and the waiter cancelled in one step
            elif place in self._pending:
                self._pending.remove(place)
            raise

    def _leave(self) -> None:
        """Give the place to the call that waits longest."""
        while self._pending:
            place = self._pending.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._running -= 1


def _closed() -> RemoteStorageError:
    return RemoteStorageError(
        "remote reads have ended", remedy="nothing to do: the process is ending", code=TierErrorCode.READER_CLOSED
    )
