"""BoundedJobs: blocking jobs of the pages in threads, a few at a time, so that a disk that hangs costs no more."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from tierd.tasks import retrieve

_T = TypeVar("_T")

AT_ONCE: Final = 2
TIMEOUT_S: Final = 3.0


class BoundedJobs:
    """Runner of blocking jobs. A job that does not end keeps its thread; while all are kept, no other job begins."""

    def __init__(self, *, at_once: int = AT_ONCE, timeout_s: float = TIMEOUT_S) -> None:
        """Run at most ``at_once`` jobs, and wait ``timeout_s`` for each."""
        self._at_once = at_once
        self._timeout_s = timeout_s
        self._running: set[asyncio.Task[object]] = set()

    @property
    def is_full(self) -> bool:
        """Return True while no other job begins."""
        return len(self._running) >= self._at_once

    async def run(self, job: Callable[[], _T], *, default: _T) -> _T:
        """Return the result of ``job``, or ``default`` if it takes too long or earlier jobs hang.

        A cancellation ends the wait; the job goes on to its end. The errors of the job are raised.
        """
        if self.is_full:
            return default
        task = asyncio.ensure_future(asyncio.to_thread(job))
        self._running.add(task)
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
        return task.result() if done else default

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        retrieve(task)
