"""SimulatedWorld: the time, the chance and the trace of a simulation; NodeLoop: the event loop of one process in it.

::

    world: heap of (time, number, node, call) ──► the call, in its node's turn ──► the node's loop runs what is due
                       ▲                                                                │
                       └──────────── messages, timers of the node's loop ◄──────────────┘

There is no thread, no socket and no real time: the same seed gives the same steps. A paused process (SIGSTOP) has no
turn, and everything that was for it happens at once when it goes on.
"""

import asyncio
from asyncio import events
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

_TICK_S = 1e-6


class Turned(Protocol):
    """Process that gets turns."""

    node_id: int
    is_alive: bool
    is_paused: bool
    process_epoch: int
    loop: "NodeLoop"
    backlog: list[Callable[[], None]]


class NodeLoop(asyncio.BaseEventLoop):
    """Event loop that runs only in the turns of its process, on the time of the world."""

    def __init__(self, world: "SimulatedWorld") -> None:
        super().__init__()
        self.set_debug(False)
        self.failures: list[BaseException] = []
        self._world = world
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self._world.now_s

    def run_due(self, call: Callable[[], None] = lambda: None) -> None:
        """Make a call; then run everything that is ready, and the timers that have fired, until nothing is left."""
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        events._set_running_loop(self)
        try:
            call()
            while True:
                now_s = self._world.now_s
                while scheduled and scheduled[0]._when <= now_s:
                    handle = heappop(scheduled)
                    handle._scheduled = False
                    ready.append(handle)
                if not ready:
                    break
                for _ in range(len(ready)):
                    handle = ready.popleft()
                    if not handle._cancelled:
                        handle._run()
        finally:
            events._set_running_loop(None)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - as the method of the library has it
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a time, which is never now: a clock moves on between the making of a timer and its end."""
        return super().call_at(max(when, self.time() + _TICK_S), callback, *args, context=context)

    def note_end(self, task: "asyncio.Task[None]") -> None:
        """Take note of what a task raised; a callback of tasks."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    @property
    def next_timer_s(self) -> float:
        """Return the time of the next timer; infinite for none."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heappop(scheduled)._scheduled = False
        return scheduled[0]._when if scheduled else float("inf")

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - as the method of the library has it
        context: Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(error if isinstance(error, BaseException) else RuntimeError(context["message"]))


class NodeClock:
    """``Clock`` of a process of the world."""

    def __init__(self, world: "SimulatedWorld") -> None:
        self._world = world

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self._world.now_s * 1000)

    def monotonic_s(self) -> float:
        return self._world.now_s

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class SimulatedWorld:
    """Time, chance and trace.

    Attributes:
        now_s: monotonic time of all processes.
        rng: chance; every draw is made in the order of the events.
        check: called after each turn, with the node whose turn it was.
    """

    def __init__(self, seed: int, trace: Callable[[str], None] | None) -> None:
        self.now_s = 1000.0
        self.rng = Random(seed)
        self.check: Callable[[Turned], None] = lambda _node: None
        self.turns = 0
        self._trace = trace
        self._heap: list[tuple[float, int, Turned | None, int, Callable[[], None]]] = []
        self._count = 0
        self._armed: dict[Turned, float] = {}

    @property
    def is_traced(self) -> bool:
        return self._trace is not None

    def trace(self, text: str) -> None:
        """Write a line of the trace."""
        if self._trace is not None:
            self._trace(f"{self.now_s - 1000:9.4f}  {text}")

    def after(self, delay_s: float, node: Turned | None, call: Callable[[], None]) -> None:
        """Make a call later, in a turn of the present process of ``node``; after its death the call is not made."""
        self._push(self.now_s + delay_s, node, call)

    def run_until(self, until_s: float) -> None:
        """Let everything happen up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            at_s, _, node, process_epoch, call = heappop(heap)
            self.now_s = max(self.now_s, at_s)
            if node is None:
                call()
            elif node.process_epoch == process_epoch:
                self.take_turn(node, call)
        self.now_s = until_s

    def take_turn(self, node: Turned, call: Callable[[], None]) -> None:
        """Make a call in a turn of a process."""
        if not node.is_alive:
            return
        if node.is_paused:
            node.backlog.append(call)
            return
        self.turns += 1
        node.loop.run_due(call)
        if node.loop.failures:
            raise node.loop.failures[0]
        self.arm(node)
        self.check(node)

    def arm(self, node: Turned) -> None:
        """Give the process a turn when its next timer fires."""
        at_s = node.loop.next_timer_s
        if at_s < self._armed.get(node, float("inf")):
            self._armed[node] = at_s
            self._push(at_s, node, lambda: self._fire(node, at_s))

    def begin(self, node: Turned) -> None:
        """Give the first turn to a process whose loop is new."""
        self._armed.pop(node, None)
        self.take_turn(node, lambda: None)

    def resume(self, node: Turned) -> None:
        """Let a paused process go on: with everything that has come meanwhile."""
        node.is_paused = False
        backlog, node.backlog = node.backlog, []
        for call in backlog:
            self.take_turn(node, call)
        self.take_turn(node, lambda: None)

    def _push(self, at_s: float, node: Turned | None, call: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._heap, (at_s, self._count, node, 0 if node is None else node.process_epoch, call))

    def _fire(self, node: Turned, at_s: float) -> None:
        if self._armed.get(node) == at_s:
            del self._armed[node]
