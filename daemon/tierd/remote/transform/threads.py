"""Threads: a bounded pool for what computes; it is made when it is first needed."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_MAX_THREADS = 4


class Threads:
    """Runs blocking calls that give the GIL away. A call that is cancelled goes on to its end, and is forgotten."""

    def __init__(self, count: int | None = None) -> None:
        """``count``: threads at most; by default one for each processor, up to 4."""
        self._count = count or min(_MAX_THREADS, os.cpu_count() or 1)
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Begin ``call`` in a thread, or queue it; whoever submits bounds how many are queued."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="transform")
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """End the threads when what they do is done. Never blocks; closing twice is harmless."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
