"""KafkaEndpoint: all listeners of the read endpoint, from binding to the last answer of a stop.

::

    listening ──► bound ──► accepting ──► closing: nothing is accepted, waiting connections are closed, waiting handlers
                                          answer what they have ──► stop_timeout_s later the others are cancelled
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tierd.clock import Clock
from tierd.ports import ConnectionGate, ConnectionLimits
from tierd.serve.kafka.access import PrincipalQuotas
from tierd.serve.kafka.connections.connection_scope import EndpointServices
from tierd.serve.kafka.connections.file_slices import FileSlices
from tierd.serve.kafka.endpoint_limits import EndpointLimits
from tierd.serve.kafka.endpoint_listener import EndpointListener, ListenerPlan
from tierd.serve.kafka.endpoint_statistics import EndpointRecorder, EndpointStatistics
from tierd.serve.kafka.loop_turns import LoopTurns
from tierd.serve.kafka.memory_budget import MemoryBudget
from tierd.serve.kafka.request_context import Handler
from tierd.tasks import end_tasks, wait_all

_THREADS: Final = 4
"""Threads that read local segments that are not in memory; a disk that hangs holds up those reads only."""


class KafkaEndpoint:
    """The read endpoint. ``listening`` is entered once."""

    def __init__(
        self,
        listeners: Sequence[ListenerPlan],
        handlers: Mapping[int, Handler],
        *,
        limits: EndpointLimits,
        quotas: PrincipalQuotas,
        recorder: EndpointRecorder,
        clock: Clock,
        is_short: Callable[[], bool],
    ) -> None:
        """Bind nothing yet.

        Args:
            listeners: with names of their own.
            handlers: by api key, for every request of ``API_TABLE`` but SaslHandshake and SaslAuthenticate.
            limits: bounds of all listeners together.
            quotas: of principals.
            recorder: takes a record of every request.
            clock: of all deadlines.
            is_short: says that descriptors run out; then few connections are accepted.
        """
        self._limits = limits
        gate_limits = ConnectionLimits(connections=limits.connections, per_peer=limits.connections_per_peer)
        request_bytes = limits.memory_bytes // 4
        answer_bytes = limits.memory_bytes - request_bytes
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafka endpoint")
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kafka requests")  # more would hold up the event loop
        self._services = EndpointServices(
            handlers=handlers,
            quotas=quotas,
            limits=limits,
            gate=ConnectionGate(gate_limits, clock=clock, is_short=is_short),
            clock=clock,
            requests=MemoryBudget(request_bytes, share_bytes=request_bytes),
            answers=MemoryBudget(answer_bytes, share_bytes=min(answer_bytes, limits.answer_memory_bytes)),
            turns=LoopTurns(self._worker),
            slices=FileSlices(self._executor, clock=clock, most_kept=limits.kept_files),
            recorder=recorder,
            closing=asyncio.Event(),
        )
        self._listeners = {plan.name: EndpointListener(plan, self._services) for plan in listeners}

    @contextlib.asynccontextmanager
    async def listening(self, group: asyncio.TaskGroup) -> AsyncIterator[Mapping[str, tuple[str, int]]]:
        """Serve while the context lasts; yield host and bound port by the name of the listener.

        The first connection is accepted in the first wait of the caller inside the context, so that the caller can
        tell others the ports before.

        Raises:
            ListenError: an address cannot be bound; none is.
        """
        accepting: list[asyncio.Task[None]] = []
        watching = [
            group.create_task(self._services.gate.watch(), name="kafka deadlines"),
            group.create_task(self._services.slices.watch(), name="kafka open files"),
            group.create_task(self._services.requests.watch(self._services.clock), name="kafka memory of requests"),
            group.create_task(self._services.answers.watch(self._services.clock), name="kafka memory of answers"),
        ]
        try:
            addresses = {name: await listener.bind() for name, listener in self._listeners.items()}
            for listener in self._listeners.values():
                accepting += listener.accept(group)
            yield addresses
        finally:
            stopping = asyncio.create_task(self._stop(accepting, watching), name="kafka closing")
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:
                for connection in self._connections():  # a second cancellation waits for no answer
                    connection.cancel()
                await wait_all([stopping])
                raise

    def statistics(self) -> EndpointStatistics:
        """Return the state now."""
        services = self._services
        return EndpointStatistics(
            listeners=tuple(listener.statistics() for listener in self._listeners.values()),
            refused=services.gate.refused,
            request_bytes=services.requests.used_bytes,
            answer_bytes=services.answers.used_bytes,
            waiting_answers=services.answers.waiting,
        )

    async def _stop(self, accepting: Iterable[asyncio.Task[None]], watching: Iterable[asyncio.Task[None]]) -> None:
        self._services.closing.set()
        await end_tasks(accepting)
        for listener in self._listeners.values():
            listener.close()
        self._services.gate.cut_waiting()
        await self._drain(self._connections())
        await end_tasks(watching)
        self._services.slices.close()
        self._executor.shutdown(wait=False)
        self._worker.shutdown(wait=False)

    def _connections(self) -> set[asyncio.Task[None]]:
        return {task for listener in self._listeners.values() for task in listener.tasks}

    async def _drain(self, connections: set[asyncio.Task[None]]) -> None:
        """Wait for answers under way, and cancel those that take longer than the stop may."""
        if not connections:
            return
        ended = asyncio.create_task(asyncio.wait(connections), name="kafka drain")
        deadline = asyncio.create_task(self._services.clock.sleep(self._limits.stop_timeout_s), name="kafka stop")
        await asyncio.wait({ended, deadline}, return_when=asyncio.FIRST_COMPLETED)
        await end_tasks([deadline, *connections])
        await ended
