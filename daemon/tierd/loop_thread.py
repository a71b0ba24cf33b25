"""LoopThread: an event loop for callers that have none, in a thread of its own."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import uvloop

from tierd.errors import RetriableRemoteStorageError

T = TypeVar("T")

_STOP_TIMEOUT_S: Final = 30.0


class LoopClosedError(RuntimeError):
    """The loop was closed, or is being closed; the work was not begun."""


class LoopThread:
    """Thread with an event loop that runs coroutines for other threads until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._lock = threading.RLock()  # the garbage collector may close something at any line
        self._is_closing = False
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_current(self) -> bool:
        """Return True in the thread of the loop itself, which must not wait for what it runs."""
        return threading.current_thread() is self._thread

    def begin(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Begin ``work``; a cancellation of the returned future cancels ``work``.

        Raises:
            LoopClosedError: ``close`` was called.
        """
        with self._lock:
            if self._is_closing:
                work.close()
                raise LoopClosedError("the event loop of the thread was closed")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], *, timeout_s: float) -> T:
        """Return what ``work`` returns. An interrupted call cancels ``work``. Never called from the loop's own thread.

        Raises:
            LoopClosedError: as ``begin``. What runs when the loop is closed is cancelled: ``CancelledError``.
            RetriableRemoteStorageError: it took longer than ``timeout_s``.
        """
        return self.result(self.begin(work), timeout_s=timeout_s)

    def result(self, begun: "concurrent.futures.Future[T]", *, timeout_s: float) -> T:
        """Wait for work that ``begin`` began, with the timeout and the errors of ``call``."""
        try:
            return begun.result(timeout_s)
        except BaseException as error:
            if begun.done():
                raise
            begun.cancel()
            if isinstance(error, TimeoutError):
                raise RetriableRemoteStorageError(
                    f"the tier did not answer within {timeout_s:g} s", remedy="look at the store, then run again"
                ) from error
            raise

    def close(self) -> None:
        """Cancel the running work and end the thread. A second call does nothing."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        for last in (_cancel_others(), self._loop.shutdown_default_executor()):
            asyncio.run_coroutine_threadsafe(last, self._loop).result(_STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_TIMEOUT_S)
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
