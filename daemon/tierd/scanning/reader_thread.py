"""ReaderThread: an open tier in an event loop of its own, for callers that have no event loop or are inside one."""

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from tierd.app import TierReader
from tierd.errors import ScanRequestError, with_remedy
from tierd.loop_thread import LoopClosedError, LoopOfParentError, LoopThread
from tierd.scanning.range_rows import ScannedBatch
from tierd.scanning.row_layout import RowLayout
from tierd.scanning.scan_plan import ScanPlan
from tierd.scanning.tier_scanner import TierScanner
from tierd.tasks import end_tasks, one_ahead

T = TypeVar("T")

_CALL_TIMEOUT_S: Final = 900.0  # the store has deadlines and repetitions of its own; this one ends what they miss


class RowStream:
    """Open read of a plan. One thread at a time takes the batches; any thread may close it."""

    def __init__(self, loop: LoopThread, rows: AsyncGenerator[ScannedBatch, None]) -> None:
        self._loop = loop
        self._rows = one_ahead(rows, name="tierd reader ahead")
        self._taking: asyncio.Task[Any] | None = None
        self._is_closed = False

    def next(self) -> ScannedBatch | None:
        """Return the next batch, which was made meanwhile; None at the end. An interrupted call ends the read.

        Raises:
            TierError: the read failed, or the reader was closed.
        """
        with _ends_told():
            return self._loop.call(self._next(), timeout_s=_CALL_TIMEOUT_S)

    def close(self) -> None:
        """End the read. A second call does nothing."""
        if self._is_closed or sys.is_finalizing():  # at the end of Python the loop's thread stands still
            return
        self._is_closed = True
        with contextlib.suppress(LoopClosedError):  # which has ended the read
            closing = self._loop.begin(self._close())
            if not self._loop.is_current:  # there, the garbage collector closes a read that was left without a word
                self._loop.result(closing, timeout_s=_CALL_TIMEOUT_S)

    async def _next(self) -> ScannedBatch | None:
        if self._is_closed:  # perhaps since the call began: then there is no next batch, and this is not the end
            raise closed_reader()
        self._taking = asyncio.current_task()
        try:
            return await anext(self._rows, None)
        finally:
            self._taking = None

    async def _close(self) -> None:
        try:
            if self._taking is not None:
                await end_tasks([self._taking])
        finally:
            await self._rows.aclose()


class ReaderThread:
    """Open tier and the reads from it, for any thread; ``close`` ends all of them."""

    def __init__(self, opening: AbstractAsyncContextManager[TierReader]) -> None:
        """Open the tier in a new thread.

        Raises:
            TierError: it cannot be opened.
        """
        self._loop = LoopThread("tierd-reader")
        self._closing = asyncio.Event()
        self._streams: set[RowStream] = set()
        self._is_closed = False
        opened: concurrent.futures.Future[TierScanner] = concurrent.futures.Future()
        self._serving = self._loop.begin(_serve(opening, opened, self._closing))
        try:
            with with_remedy():
                self._scanner = self._loop.result(opened, timeout_s=_CALL_TIMEOUT_S)
        except BaseException:
            self._loop.close()
            raise

    @property
    def scanner(self) -> TierScanner:
        """Return the reader of topics; its coroutines are for ``call``.

        Raises:
            TierError: the reader was closed.
        """
        if self._is_closed:
            raise closed_reader()
        return self._scanner

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` returns. An interrupted call cancels ``work``.

        Raises:
            TierError: ``work`` failed or took too long, or the reader was closed.
        """
        with _ends_told():
            return self._loop.call(work, timeout_s=_CALL_TIMEOUT_S)

    @contextlib.contextmanager
    def reading(self, plan: ScanPlan, layout: RowLayout) -> Iterator[RowStream]:
        """Begin a read of ``plan``; end it when the caller leaves.

        Raises:
            TierError: the reader was closed.
        """
        stream = RowStream(self._loop, self.scanner.rows(plan, layout))
        self._streams.add(stream)  # without a lock: the garbage collector may end another read at any line
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            stream.close()

    def close(self) -> None:
        """End all reads, close the tier, and end the thread. A second call does nothing."""
        if self._is_closed or sys.is_finalizing() or self._loop.is_of_parent:
            return
        if self._loop.is_current:  # the garbage collector closes a reader that was left without a word
            threading.Thread(target=self.close, name="tierd-reader-close").start()
            return
        self._is_closed = True
        try:
            for stream in list(self._streams):
                stream.close()
            self._loop.call(_set(self._closing), timeout_s=_CALL_TIMEOUT_S)
            self._loop.result(self._serving, timeout_s=_CALL_TIMEOUT_S)
        finally:
            self._loop.close()


async def _serve(
    opening: AbstractAsyncContextManager[TierReader],
    opened: "concurrent.futures.Future[TierScanner]",
    closing: asyncio.Event,
) -> None:
    """Hold the tier open: it is closed by the task that opened it."""
    task = asyncio.current_task()
    assert task is not None, "a loop runs coroutines in tasks"
    task.set_name("tierd reader")
    try:
        async with opening as reader:
            opened.set_result(TierScanner(reader))
            await closing.wait()
    except BaseException as error:
        if opened.done():
            raise
        opened.set_exception(error)


async def _set(event: asyncio.Event) -> None:
    event.set()


@contextlib.contextmanager
def _ends_told() -> Iterator[None]:
    """Raise what a call fails with, with its remedy; also where the loop has ended, or was never in this process."""
    with with_remedy():
        try:
            yield
        except LoopOfParentError:
            raise ScanRequestError(
                "the reader of the tier was opened by the parent of this process",
                remedy="open a reader in each process after the fork, or start processes by the method spawn",
            ) from None
        except (LoopClosedError, concurrent.futures.CancelledError):
            raise closed_reader() from None


def closed_reader() -> ScanRequestError:
    """Return the error of a call to a reader that was closed."""
    return ScanRequestError(
        "the reader of the tier was closed", remedy="open another one, and use its scans while it is open"
    )
