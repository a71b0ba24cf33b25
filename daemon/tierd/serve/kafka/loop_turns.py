"""LoopTurns: the event loop shared out among the requests of clients, so that none of them holds it for long.

::

    small work ──► take: a few turns in each round of the loop; clients of several addresses alternate
    long loops ──► pieces: one turn for each PIECE_ITEMS
    large work ──► aside: in a thread, one piece of work after the other

The daemon copies segments in the same loop. A round of the loop stays short, whatever clients ask for.
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
        self.executor = executor
        self._per_round = per_round
        self._left = per_round
        self._is_round_watched = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, owner: str = "") -> None:
        """Wait for a turn; ``owner`` is the address of the client."""
        if self._left and not self._waiting:
            self._left -= 1
            self._watch_round()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._watch_round()
        await turn

    def of(self, owner: str) -> "ClientTurns":
        """Return the turns for clients of one address."""
        return ClientTurns(self, owner)

    def _watch_round(self) -> None:
        if not self._is_round_watched:
            self._is_round_watched = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._is_round_watched = False
        self._left = self._per_round
        while self._left and self._waiting:
            owner, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.done():  # else its request was cancelled
                self._left -= 1
                turn.set_result(None)
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
        if items <= PIECE_ITEMS or self._turns.executor is None:
            return act(*args, **kwargs)
        work = functools.partial(act, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._turns.executor, work)
