"""Limits of restores of state stores: settings, memory for records that are not applied yet, and new beginnings."""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorerSettings:
    """Limits and times of the reader.

    Attributes:
        parallelism: stores that are restored at the same time.
        budget_bytes: memory for records that were read and not yet applied, over all stores.
        fetch_bytes: size of one read.
        batch_records: records at which a batch is applied, and its largest size.
        batch_bytes: bytes of keys and values at which a batch is applied.
        buffer_records: records of a standby above its limit that are kept; at so many it is not read on.
        poll_s: pause after a read that found nothing.
        retry_s: pause after a read that failed.
        task_timeout_s: time without progress after which a changelog that is behind is abandoned.
        commit_interval_s: least time between two lookups of committed offsets for standbys.
        checkpoint_interval_s: least time between two checkpoints of a task.
        checkpoint_offsets: offsets, summed over the task's stores, above which the interval leads to a checkpoint.
        restarts: times that a changelog may begin anew within ``restart_window_s``.
    """

    parallelism: int = 4
    budget_bytes: int = 128 << 20
    fetch_bytes: int = 1 << 20
    batch_records: int = 500
    batch_bytes: int = 1 << 20
    buffer_records: int = 10_000
    poll_s: float = 0.1
    retry_s: float = 1.0
    task_timeout_s: float = 300.0
    commit_interval_s: float = 30.0
    checkpoint_interval_s: float = 30.0
    checkpoint_offsets: int = 10_000
    restarts: int = 3
    restart_window_s: float = 600.0


class ByteBudget:
    """Memory of all restores together, reserved before a read and released after its records were applied.

    First come, first served.

    Attributes:
        used_bytes: reserved now. Above the total only by what single batches are larger than their reservation.
    """

    def __init__(self, total_bytes: int) -> None:
        self.used_bytes = 0
        self._total_bytes = total_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def reserve(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` are free, and take them. More than the total is taken once nothing else is used.

        A cancellation leaves nothing reserved.
        """
        if not self._waiting and self._fits(size_bytes):
            self.used_bytes += size_bytes
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, wake))
        try:
            await wake
        except asyncio.CancelledError:
            if wake.cancelled():
                with suppress(ValueError):  # passed over already
                    self._waiting.remove((size_bytes, wake))
                self._grant()
            else:  # granted at the same moment
                self.release(size_bytes)
            raise

    def exchange(self, reserved_bytes: int, actual_bytes: int) -> None:
        """Replace a reservation by what the read has really brought."""
        self.used_bytes += actual_bytes - reserved_bytes
        self._grant()

    def release(self, size_bytes: int) -> None:
        """Return bytes to the budget."""
        self.used_bytes -= size_bytes
        self._grant()

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self._total_bytes or self.used_bytes == 0

    def _grant(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            size_bytes, wake = self._waiting.popleft()
            if wake.done():  # cancelled, and its task has not run since
                continue
            self.used_bytes += size_bytes
            wake.set_result(None)


class RestartLimit:
    """Limit of new beginnings of one changelog, so that a source that contradicts itself does not go on for ever."""

    def __init__(self, restarts: int, window_s: float) -> None:
        self._restarts = restarts
        self._window_s = window_s
        self._admitted_s: deque[float] = deque()

    def admit(self, now_s: float) -> bool:
        """Count a new beginning; return False if there were too many within the window."""
        while self._admitted_s and now_s - self._admitted_s[0] > self._window_s:
            self._admitted_s.popleft()
        if len(self._admitted_s) >= self._restarts:
            return False
        self._admitted_s.append(now_s)
        return True
