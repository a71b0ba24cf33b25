"""Points at which a process may die, counted: every wait of every task, both sides of every call with an effect.

A kill is no cancellation. Nothing of the dead process runs any more: no ``finally``, no ``except``, no callback. In a
child process ``os._exit`` sees to that; within this process the loop is abandoned, see ``burial``.
"""

import asyncio
import os
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from tests.tiering.interruption import Interruption
from tierd.tiering.removing.ledger import Ledger, LedgerEntry

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")

KILLED_EXIT_CODE = 9


class KilledError(SystemExit):
    """Death of the process: asyncio lets it through every task and every handle, so that the loop ends at once."""


@dataclass
class _Call:
    """Call of a store behind a network: only the first of its waits counts."""

    name: str
    is_under_way: bool = False


_network_call: ContextVar[_Call | None] = ContextVar("_network_call", default=None)


class Points(Interruption):
    """Counter of the points of one process, which dies at one of them."""

    def __init__(self, *, at: int | None, place: str = "", is_child: bool = False, network_kv: bool = False) -> None:
        """Count from 1 on.

        Args:
            at: number of the point of death; with None the process lives.
            place: if not empty, only points whose description contains it count.
            is_child: this whole process dies, not only its loop.
            network_kv: waits inside a call of the key-value store depend on sockets: of them only the first counts.
        """
        super().__init__(at=at)
        self.count = 0
        self.place = ""
        self.is_dead = False
        self.now_ms: Callable[[], int] = lambda: 0
        """The clock of the process; the next one goes on where it stood."""
        self._at = at
        self._wanted = place
        self._is_child = is_child
        self._network_kv = network_kv
        self._is_counting = False

    def begin(self) -> None:
        """Count from here on: the points before were those of the start of the process."""
        self._is_counting = True

    def end(self) -> None:
        """Stop counting: the work is done."""
        self._is_counting = False

    def passes(self, place: str, waiting: object = None) -> bool:
        """Count one point; return True when the process dies here, at the latest at the next wait of the caller.

        ``waiting``: the waiting coroutine; its place is looked up only if needed.
        """
        if self.is_dead or not self._is_counting or self._wanted not in place:
            return self.is_dead
        self.count += 1
        if self.count != self._at:
            return False
        self.place, self.is_dead = place + _innermost(waiting), True
        if self._is_child:
            os.write(1, f"{self.now_ms()} {self.count} {self.place}\n".encode())
            os._exit(KILLED_EXIT_CODE)
        asyncio.get_running_loop().call_soon(self.die)
        return True

    def die(self) -> NoReturn:
        """Leave the loop for good."""
        raise KilledError

    async def during(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a call of a store: the process may die before it, with the call on the network, or before its answer."""
        name = _name(call)
        if self._network_kv and "KeyValueStore" in name:
            return await self._over_network(name, call)
        await self._stop_if(f"before {name}")
        answer = await call()
        await self._stop_if(f"after {name}")
        return answer

    async def _over_network(self, name: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        await self._stop_if(f"before {name}")
        token = _network_call.set(_Call(name))
        try:
            answer = await call()
        finally:
            _network_call.reset(token)
        await self._stop_if(f"after {name}")
        return answer

    async def _stop_if(self, place: str) -> None:
        if self.passes(place):
            await asyncio.get_running_loop().create_future()  # for ever

    def suspended(self, work: Coroutine[Any, Any, object]) -> None:
        """Count the wait of a task."""
        call = _network_call.get()
        if call is not None:
            if call.is_under_way:
                return
            call.is_under_way = True
        place = f"during {call.name}, " if call is not None else ""
        if self.is_dead or self.passes(f"{place}waiting in ", work):
            self.die()


class MarkedLedger:
    """Ledger with a point before and after each line."""

    def __init__(self, inner: Ledger, points: Points) -> None:
        self._inner = inner
        self._points = points

    async def record(self, entry: LedgerEntry) -> None:
        await self._points.during(lambda: self._inner.record(entry))


class CountingLoop(asyncio.SelectorEventLoop):
    """Event loop that counts the waits of its tasks, and does the work of threads at once, with a point before it."""

    def __init__(self, points: Points) -> None:
        super().__init__()
        self.points = points
        self.works: list[object] = []
        self.set_task_factory(self._task)

    def _task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Answer] | Generator[Any, None, Answer],
        context: Context | None = None,
    ) -> "asyncio.Task[Answer]":
        assert isinstance(work, Coroutine)
        self.works.append(work)
        return asyncio.Task(_counted(self.points, work), loop=loop, context=context)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Arguments], Answer],
        *arguments: *Arguments,
    ) -> "asyncio.Future[Answer]":
        """Do the work now, so that every run is the same; a process that dies before it never does it."""
        done: asyncio.Future[Answer] = self.create_future()
        if self.points.passes(f"before {_name(func)} in a thread"):
            return done
        try:
            answer = func(*arguments)
        except Exception as error:  # noqa: BLE001 - it belongs to the waiting task
            self.call_soon(_fail, done, error)
        else:
            self.call_soon(_settle, done, answer)
        return done


async def _counted(points: Points, work: Coroutine[Any, Any, Answer]) -> Answer:
    return await _steps(points, work)


@types.coroutine
def _steps(points: Points, work: Coroutine[Any, Any, Answer]) -> Generator[Any, Any, Answer]:
    try:
        waited_for = work.send(None)
        while True:
            points.suspended(work)
            try:
                answer = yield waited_for
            except BaseException as error:  # noqa: BLE001  any exception belongs to the driven coroutine
                if points.is_dead:
                    points.die()
                waited_for = work.throw(error)
            else:
                if points.is_dead:
                    points.die()
                waited_for = work.send(answer)
    except StopIteration as end:
        result: Answer = end.value
        return result


def _settle(done: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not done.done():
        done.set_result(answer)


def _fail(done: "asyncio.Future[Answer]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


def _name(call: object) -> str:
    """Return the name of a call without the wrappers of closures and ``functools.partial``."""
    while isinstance(call, partial):
        call = call.args[0] if getattr(call.func, "__qualname__", "") == "Context.run" else call.func
    name: str = getattr(call, "__qualname__", str(call))
    return name.split(".<locals>", maxsplit=1)[0]


def _innermost(work: object) -> str:
    """Return the Python line at which a suspended coroutine waits: its own line, not that of asyncio."""
    place = ""
    while work is not None:
        code = getattr(work, "cr_code", None) or getattr(work, "gi_code", None) or getattr(work, "ag_code", None)
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None) or getattr(work, "ag_frame", None)
        if code is not None and frame is not None and "/asyncio/" not in code.co_filename:
            place = f"{code.co_qualname}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None) or getattr(work, "ag_await", None)
    return place
