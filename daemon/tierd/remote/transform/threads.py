"""Threads: a bounded pool of threads for computations, made at its first use."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_MAX_THREADS = 4


class Threads:
    """Pool for blocking calls that release the GIL. A cancelled call goes on to its end; its result is dropped."""

    def __init__(self, count: int | None = None) -> None:
        """``count``: threads at most; by default one for each processor, up to 4."""
        self._count = count or min(_MAX_THREADS, os.cpu_count() or 1)
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Begin ``call`` in a thread, or queue it; the caller bounds the number of queued calls."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="transform")
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """End the threads after their running calls, without waiting for them; closing twice is harmless."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
