"""CheckAhead: segments of one partition checked in order, the next one while the one before it is uploaded."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Self

from tierd.tiering.copying.prepare import PreparedSegment
from tierd.tiering.local.held_segment import HeldSegment

CheckedSegment = tuple[HeldSegment, PreparedSegment]
SegmentChecker = Callable[[HeldSegment], Coroutine[object, object, CheckedSegment]]


class CheckAhead:
    """Checks of one pass: one in use and at most one ahead, each holding a copy slot from its begin to its end.

    Used as a context: leaving it releases the slots that are still held, and cancels the checks under way. The thread
    that reads for a cancelled check runs to its end, and its result is dropped.
    """

    def __init__(self, slots: asyncio.Semaphore, check: SegmentChecker) -> None:
        """Check nothing yet; ``slots`` bounds the segments of all partitions that are checked or uploaded at once."""
        self._slots = slots
        self._check = check
        self._current: asyncio.Task[CheckedSegment] | None = None
        self._ahead: asyncio.Task[CheckedSegment] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        dropped = [task for task in (self._current, self._ahead) if task is not None]
        self._current = self._ahead = None
        for task in dropped:  # before anything is awaited: a slot that is lost is lost for ever
            self._slots.release()
            task.cancel()
        if dropped:
            await asyncio.wait(dropped)
        for task in dropped:
            if not task.cancelled():
                task.exception()  # raised by ``result`` for a caller that asked

    async def begin(self, held: HeldSegment) -> None:
        """Wait for a slot and begin the check of ``held``, unless that was begun ahead."""
        assert self._current is None, "one segment at a time"
        if self._ahead is None:
            await self._slots.acquire()
            self._ahead = asyncio.create_task(self._check(held))
        self._current, self._ahead = self._ahead, None

    async def result(self) -> CheckedSegment:
        """Wait for the check that was begun; what it raises is raised."""
        assert self._current is not None, "begun before"
        return await asyncio.shield(self._current)

    async def begin_ahead(self, following: HeldSegment | None) -> None:
        """Begin the check of the next segment if a slot is free and no other partition waits for it."""
        if following is not None and not self._slots.locked():
            await self._slots.acquire()  # does not wait: it is not locked
            self._ahead = asyncio.create_task(self._check(following))

    def end(self) -> None:
        """End the segment whose result was given, and release its slot."""
        assert self._current is not None, "begun before"
        assert self._current.done(), "asked for before"
        self._current = None
        self._slots.release()
