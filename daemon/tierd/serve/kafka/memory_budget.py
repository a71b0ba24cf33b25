"""MemoryBudget: the bytes that all requests, or all answers, of the endpoint may take at a time, in fair order.

::

    reserve ──► waits behind earlier ones ──► granted ──► settle: what the answer really took ──► sent: given back

An answer that has memory never waits for more: the answers that hold the budget always end, so that waiting ones go on.
One owner, which is the address of a client, gets half of the budget at most: clients that take their answers slowly do
not hold up those of other hosts.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tierd.clock import Clock

PATIENCE_S: Final = 5.0
"""Time for which others wait for the memory of a client that does nothing."""
_CHECK_INTERVAL_S: Final = 1.0


class _MemoryWait(NamedTuple):
    size_bytes: int
    owner: str
    granted: "asyncio.Future[None]"


class _IdleClient(NamedTuple):
    since_s: float
    cut: Callable[[], None]


class MemoryBudget:
    """Bytes that may be in use at a time, granted first come, first served."""

    def __init__(self, total_bytes: int, *, share_bytes: int) -> None:
        """Grant up to ``total_bytes`` at a time, and up to ``share_bytes`` of these to one answer."""
        assert 0 < share_bytes <= total_bytes, "a share is a part of the whole"
        self.total_bytes = total_bytes
        self.share_bytes = share_bytes
        self.used_bytes = 0
        """Bytes in use; more than the total only while a first batch is larger than what was granted for it."""
        self._used_by: Counter[str] = Counter()
        self._waiting: deque[_MemoryWait] = deque()
        self._is_short = asyncio.Event()
        self._idle: dict[AnswerMemory, _IdleClient] = {}

    @property
    def waiting(self) -> int:
        """Return the number of those that wait for memory."""
        return len(self._waiting)

    def share(self, owner: str = "") -> "AnswerMemory":
        """Return the memory of one answer, which has none yet."""
        return AnswerMemory(self, owner)

    async def take(self, size_bytes: int, owner: str = "") -> None:
        """Take memory once all earlier ones have theirs; a cancelled call leaves nothing taken.

        Those whose owner has its half do not hold up later ones. More than the total is granted when nothing else is in
        use, and more than the half when the owner has nothing else.
        """
        if not self._waiting and self._has_room(size_bytes) and self._may_have(owner, size_bytes):
            self.take_beyond(size_bytes, owner)
            return
        entry = _MemoryWait(size_bytes, owner, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        self._is_short.set()
        self._grant()
        try:
            await entry.granted
        except asyncio.CancelledError:
            if entry.granted.done() and not entry.granted.cancelled():
                self.give(size_bytes, owner)
            else:
                self._waiting.remove(entry)
                self._grant()
            raise

    async def watch(self, clock: Clock) -> None:
        """Cut clients that hold memory and make others wait for it, until cancelled.

        These are the clients that neither send the rest of a request nor take a part of an answer for ``PATIENCE_S``.
        They are cut, the longest idle first, as far as others need who have waited for as long.
        """
        while True:
            await self._is_short.wait()
            since_s: dict[asyncio.Future[None], float] = {}
            while self._waiting:
                now_s = clock.monotonic_s()
                since_s = {each.granted: since_s.get(each.granted, now_s) for each in self._waiting}
                before_s = now_s - PATIENCE_S
                self._cut_idle([each for each in self._waiting if since_s[each.granted] <= before_s], before_s)
                await clock.sleep(_CHECK_INTERVAL_S)
            self._is_short.clear()

    def expect(self, memory: "AnswerMemory", idle: "_IdleClient | None") -> None:
        """Take note that the client has to act before its memory is given back; None: it has acted."""
        if idle is None:
            self._idle.pop(memory, None)
        else:
            self._idle[memory] = idle

    async def wait_free(self, owner: str = "") -> None:
        """Wait, in turn, while more is in use than the total."""
        if self.used_bytes > self.total_bytes:
            await self.take(1, owner)
            self.give(1, owner)

    def take_free(self, size_bytes: int, owner: str) -> int:
        """Take as much of ``size_bytes`` as is free at once, and return how much; 0 while others wait."""
        room = min(self.total_bytes - self.used_bytes, self.total_bytes // 2 - self._used_by[owner])
        taken = 0 if self._waiting else min(size_bytes, max(0, room))
        self.take_beyond(taken, owner)
        return taken

    def take_beyond(self, size_bytes: int, owner: str) -> None:
        """Count bytes that are in use already, even if they exceed the total."""
        self.used_bytes += size_bytes
        self._used_by[owner] += size_bytes

    def give(self, size_bytes: int, owner: str = "") -> None:
        """Give memory back, and grant it to those that wait."""
        self.used_bytes -= size_bytes
        self._used_by[owner] -= size_bytes
        assert self._used_by[owner] >= 0, "more was given back than taken"
        if not self._used_by[owner]:
            del self._used_by[owner]
        self._grant()

    def _cut_idle(self, waits: Iterable[_MemoryWait], before_s: float) -> None:
        idle = [(memory, client) for memory, client in self._idle.items() if client.since_s <= before_s]
        idle.sort(key=lambda each: each[1].since_s, reverse=True)
        for wait in waits:
            # Memory of others does not help an owner that has its half.
            owners = None if self._may_have(wait.owner, wait.size_bytes) else {wait.owner}
            missing_bytes, spared = wait.size_bytes, []
            while idle and missing_bytes > 0:
                memory, client = idle.pop()
                if owners is not None and memory.owner not in owners:
                    spared.append((memory, client))
                else:
                    missing_bytes -= memory.size_bytes
                    client.cut()
            idle += reversed(spared)

    def _has_room(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.total_bytes or not self.used_bytes

    def _may_have(self, owner: str, size_bytes: int) -> bool:
        used_bytes = self._used_by[owner]
        return used_bytes + size_bytes <= self.total_bytes // 2 or not used_bytes

    def _grant(self) -> None:
        held_back: list[_MemoryWait] = []
        while self._waiting:
            first = self._waiting[0]
            is_cancelled = first.granted.done()  # in this round of the loop
            if is_cancelled or not self._may_have(first.owner, first.size_bytes):
                held_back.append(self._waiting.popleft())
            elif self._has_room(first.size_bytes):
                self._waiting.popleft()
                self.take_beyond(first.size_bytes, first.owner)
                first.granted.set_result(None)
            else:
                break
        self._waiting.extendleft(reversed(held_back))


class AnswerMemory:
    """Memory of one answer. Its connection gives everything back when the answer is sent, or will not be."""

    __slots__ = ("_budget", "owner", "size_bytes")

    def __init__(self, budget: MemoryBudget, owner: str) -> None:
        self._budget = budget
        self.owner = owner
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
            granted = self._budget.take_free(wanted, self.owner)
        else:
            await self._budget.take(wanted, self.owner)
            granted = wanted
        self.size_bytes += granted
        return granted

    def await_client(self, now_s: float, cut: Callable[[], None]) -> None:
        """Note that the memory is held for a client that has to send or take bytes from now on; see ``watch``."""
        if self.size_bytes:
            self._budget.expect(self, _IdleClient(now_s, cut))

    def client_came(self) -> None:
        """Note that the client has sent or taken everything."""
        self._budget.expect(self, None)

    def settle(self, size_bytes: int) -> None:
        """Set the bytes that the answer holds after its reads: what was reserved beyond them is free at once.

        It may be more than was granted, since a first batch is answered whatever its size. 0 before a wait.
        """
        if not size_bytes:
            self.client_came()
        change = size_bytes - self.size_bytes
        self.size_bytes = size_bytes
        if change > 0:
            self._budget.take_beyond(change, self.owner)
        elif change < 0:
            self._budget.give(-change, self.owner)
