"""MemoryBudget: the bytes that all requests, or all answers, of the endpoint may take at a time, in fair order.

::

    reserve ──► waits behind earlier ones ──► granted ──► settle: what the answer really took ──► sent: given back

An answer that has memory never waits for more: the answers that hold the budget always end, so that waiting ones go on.
"""

import asyncio
from collections import deque


class MemoryBudget:
    """Bytes that may be in use at a time, granted first come, first served."""

    def __init__(self, total_bytes: int, *, share_bytes: int) -> None:
        """Grant up to ``total_bytes`` at a time, and up to ``share_bytes`` of these to one connection."""
        assert 0 < share_bytes <= total_bytes, "a share is a part of the whole"
        self.total_bytes = total_bytes
        self.share_bytes = share_bytes
        self.used_bytes = 0
        """Bytes in use; more than the total only while a first batch is larger than what was granted for it."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """Return the number of those that wait for memory."""
        return len(self._waiting)

    def share(self) -> "AnswerMemory":
        """Return the memory of one answer, which has none yet."""
        return AnswerMemory(self)

    async def take(self, size_bytes: int) -> None:
        """Take memory once all earlier ones have theirs; a cancelled call leaves nothing taken.

        More than the total is granted when nothing else is in use.
        """
        if not self._waiting and self._is_free(size_bytes):
            self.used_bytes += size_bytes
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size_bytes, granted)
        self._waiting.append(entry)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give(size_bytes)
            else:
                self._waiting.remove(entry)
                self._grant()
            raise

    async def wait_free(self) -> None:
        """Wait, in turn, while more is in use than the total."""
        if self.used_bytes > self.total_bytes:
            await self.take(1)
            self.give(1)

    def take_free(self, size_bytes: int) -> int:
        """Take as much of ``size_bytes`` as is free at once, and return how much; 0 while others wait."""
        taken = 0 if self._waiting else min(size_bytes, max(0, self.total_bytes - self.used_bytes))
        self.used_bytes += taken
        return taken

    def take_beyond(self, size_bytes: int) -> None:
        """Count bytes that are in use already, even if they exceed the total."""
        self.used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Give memory back, and grant it to those that wait."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more was given back than taken"
        self._grant()

    def _is_free(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.total_bytes or not self.used_bytes

    def _grant(self) -> None:
        while self._waiting and self._is_free(self._waiting[0][0]):
            size_bytes, granted = self._waiting.popleft()
            if not granted.done():
                self.used_bytes += size_bytes
                granted.set_result(None)


class AnswerMemory:
    """Memory of one answer. Its connection gives everything back when the answer is sent, or will not be."""

    __slots__ = ("_budget", "size_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.size_bytes = 0
        """Bytes that the answer has now."""

    async def reserve(self, size_bytes: int) -> int:
        """Reserve memory before records are read into it, and return how many bytes were granted.

        The call waits its turn if the answer has no memory; otherwise it takes what is free at once, which may be
        nothing. The whole answer gets ``share_bytes`` at most. Bytes of a ``FileSlice`` need no memory.
        """
        wanted = min(size_bytes, self._budget.share_bytes - self.size_bytes)
        if wanted <= 0:
            return 0
        if self.size_bytes:
            granted = self._budget.take_free(wanted)
        else:
            await self._budget.take(wanted)
            granted = wanted
        self.size_bytes += granted
        return granted

    def settle(self, size_bytes: int) -> None:
        """Set the bytes that the answer holds after its reads: what was reserved beyond them is free at once.

        It may be more than was granted, since a first batch is answered whatever its size. 0 before a wait.
        """
        change = size_bytes - self.size_bytes
        self.size_bytes = size_bytes
        if change > 0:
            self._budget.take_beyond(change)
        elif change < 0:
            self._budget.give(-change)
