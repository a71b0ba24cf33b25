"""LoopThread: an event loop for callers that have none, in a thread of its own."""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, Self, TypeVar

import structlog
import uvloop

from tierd.errors import RetriableRemoteStorageError
from tierd.tasks import drop_task

T = TypeVar("T")

_TASKS_TIMEOUT_S: Final = 30.0
_THREAD_TIMEOUT_S: Final = 60.0  # from the same moment on
_WORKERS_TIMEOUT_S: Final = 30.0

log = structlog.get_logger()


class LoopClosedError(RuntimeError):
    """The loop was closed, or is being closed; the work was not begun."""


class LoopOfParentError(LoopClosedError):
    """The loop runs in the process that this one was forked from; the work was not begun."""


class LoopThread:
    """Thread with an event loop that runs coroutines for other threads until it is closed.

    It is of one process: a fork takes the object along, and not the thread.
    """

    def __init__(self, name: str) -> None:
        self._process_id = os.getpid()
        self._loop = uvloop.new_event_loop()
        # Not the loop's own executor: that of uvloop ends with its last thread, and the loop with it, or never.
        self._workers = concurrent.futures.ThreadPoolExecutor(thread_name_prefix=f"{name}-work")
        self._loop.set_default_executor(self._workers)
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._lock = threading.RLock()  # the garbage collector may close something at any line
        self._is_closing = False
        self._ending: concurrent.futures.Future[None] | None = None  # has the task, which the loop holds weakly
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_current(self) -> bool:
        """Return True in the thread of the loop itself, which must not wait for what it runs."""
        return threading.current_thread() is self._thread

    @property
    def is_of_parent(self) -> bool:
        """Return True in a process that was forked from that of the loop: nothing runs there."""
        return os.getpid() != self._process_id

    def begin(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Begin ``work``; a cancellation of the returned future cancels ``work``.

        Raises:
            LoopClosedError: ``close`` was called.
            LoopOfParentError: this process was forked from that of the loop.
        """
        if self.is_of_parent:  # where another thread may have held the lock
            work.close()
            raise LoopOfParentError("the event loop runs in the parent of this process")
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
        """Cancel the running work, wait for its end, and end the thread and its workers. A second call does nothing.

        Work that does not end within 30 s is left as it is, then the thread within 30 s more, then workers within 30 s
        more; each with a line in the log. Python cannot end a thread that does not return, such as one that waits for
        a disk that hangs: such a worker holds up the end of the process. In a process that was forked from that of the
        loop, nothing is done.
        """
        if self.is_of_parent:
            return
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            self._ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(_THREAD_TIMEOUT_S)
        if self._thread.is_alive():
            self._warn_of("a call that blocks the event loop")
        else:
            self._loop.close()
        self._end_workers()

    async def _end(self) -> None:
        """Cancel the tasks, wait for their end, and stop the loop."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            drop_task(task)
        if others and (await asyncio.wait(others, timeout=_TASKS_TIMEOUT_S))[1]:
            self._warn_of("a task that does not end")
        self._loop.stop()

    def _end_workers(self) -> None:
        ending = threading.Thread(target=self._workers.shutdown, name=f"{self._thread.name}-close", daemon=True)
        ending.start()
        ending.join(_WORKERS_TIMEOUT_S)
        if ending.is_alive():
            self._warn_of("a worker thread that does not return")

    def _warn_of(self, what: str) -> None:
        log.warning(
            "loop_thread_leaves_work",
            thread=self._thread.name,
            problem=f"{what} was left behind",
            remedy="look at the disks and the stores that were read; the process may not end before they answer",
        )
