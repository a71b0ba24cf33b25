"""LoopTurns: the event loop shared out among the requests of clients, so that none of them holds it for long.

::

    small work ──► take: a few turns in each round of the loop
    long loops ──► pieces: one turn for each PIECE_ITEMS
    large work ──► aside: in a thread, one piece of work after the other

The daemon copies segments in the same loop. A round of the loop stays short, whatever clients ask for. Where clients
have to wait, those of several addresses alternate.
"""

import asyncio
import functools
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Executor
from typing import Final, ParamSpec, TypeVar

PIECE_ITEMS: Final = 100
"""Items of a request or an answer that one turn is for: a few milliseconds."""
_PER_ROUND: Final = 8

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


class LoopTurns:
    """Turns on one event loop."""

    def __init__(self, executor: Executor | None = None, *, per_round: int = _PER_ROUND) -> None:
        """Grant ``per_round`` turns in each round, and run large work in ``executor``, or at once without one."""
        self._executor = executor
        self._per_round = per_round
        self._left = per_round
        self._is_round_watched = False
        self._is_thread_busy = False
        self._for_turns = _WaitingClients()
        self._for_thread = _WaitingClients()

    def of(self, owner: str) -> "ClientTurns":
        """Return the turns for clients of one address."""
        return ClientTurns(self, owner)

    async def take(self, owner: str) -> None:
        """Wait for a turn; ``owner`` is the address of the client."""
        self._watch_round()
        if self._left and not self._for_turns:
            self._left -= 1
        else:
            await self._for_turns.add(owner)

    async def aside(self, owner: str, act: Callable[[], _R]) -> _R:
        """Return the result of ``act``, which is called in the thread."""
        if self._executor is None:
            return act()
        if self._is_thread_busy:
            await self._granted_thread(owner)
        self._is_thread_busy = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, act)
        finally:
            self._free_thread()

    async def _granted_thread(self, owner: str) -> None:
        granted = self._for_thread.add(owner)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self._free_thread()
            raise

    def _free_thread(self) -> None:
        if (waiting := self._for_thread.next()) is not None:
            waiting.set_result(None)
        else:
            self._is_thread_busy = False

    def _watch_round(self) -> None:
        if not self._is_round_watched:
            self._is_round_watched = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._is_round_watched = False
        self._left = self._per_round
        while self._left and (waiting := self._for_turns.next()) is not None:
            self._left -= 1
            waiting.set_result(None)
        if self._left < self._per_round:
            self._watch_round()


class ClientTurns:
    """Turns for the clients of one address."""

    __slots__ = ("_owner", "_turns")

    def __init__(self, turns: LoopTurns, owner: str) -> None:
        self._turns = turns
        self._owner = owner

    async def take(self) -> None:
        """Wait for a turn."""
        await self._turns.take(self._owner)

    async def pieces(self, items: Iterable[_T]) -> AsyncIterator[_T]:
        """Yield ``items``, with a turn before each piece of them but the first."""
        for count, item in enumerate(items):
            if count and not count % PIECE_ITEMS:
                await self.take()
            yield item

    async def aside(self, items: int, act: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Return the result of ``act``, which reads immutable values only and takes time for so many items."""
        if items <= PIECE_ITEMS:
            return act(*args, **kwargs)
        return await self._turns.aside(self._owner, functools.partial(act, *args, **kwargs))


class _WaitingClients:
    """Clients that wait; their addresses alternate. One whose wait was cancelled is passed over."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_owner)

    def add(self, owner: str) -> "asyncio.Future[None]":
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._by_owner.setdefault(owner, deque()).append(waiting)
        return waiting

    def next(self) -> "asyncio.Future[None] | None":
        while self._by_owner:
            owner, others = self._by_owner.popitem(last=False)
            first = others.popleft()
            if others:
                self._by_owner[owner] = others
            if not first.done():
                return first
        return None
