"""EndpointListener: one address at which clients connect, and the tasks of its connections."""

import asyncio
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from tierd.errors import ListenError
from tierd.ports import Connection, accept_connections, listening_sockets, peer_of
from tierd.serve.kafka.connections.channel import Channel, PlainChannel
from tierd.serve.kafka.connections.client_connection import ClientConnection
from tierd.serve.kafka.connections.connection_scope import ConnectionScope, EndpointServices, FaultLog
from tierd.serve.kafka.connections.request_exchange import ClientAddress
from tierd.serve.kafka.connections.tls_channel import TlsChannel
from tierd.serve.kafka.endpoint_statistics import ListenerStatistics
from tierd.serve.kafka.login import LoginMethods

_connection_ids: Final = itertools.count(1)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerPlan:
    """One listener to be.

    Attributes:
        name: as clients, metrics and the log know it.
        host: name or address of an interface.
        port: 0 lets the system choose.
        tls: returns the context for one handshake; None without TLS. With client certificates and without ``logins`` a
            certificate names the principal.
        logins: None where clients do not log in.
    """

    name: str
    host: str
    port: int
    tls: Callable[[], Awaitable[ssl.SSLContext]] | None = None
    logins: LoginMethods | None = None


class EndpointListener:
    """One listener; ``close`` and the end of the tasks are the caller's to see to."""

    def __init__(self, plan: ListenerPlan, services: EndpointServices) -> None:
        """Bind nothing yet."""
        self._plan = plan
        self._services = services
        self._scope = ConnectionScope(
            listener=plan.name, logins=plan.logins, services=services, faults=FaultLog(plan.name, services.clock)
        )
        self._sockets: list[socket.socket] = []
        self.tasks: set[asyncio.Task[None]] = set()
        """Tasks of the connections."""

    async def bind(self) -> tuple[str, int]:
        """Bind every address of the host, and return the host with the port that is in use.

        Raises:
            ListenError: an address cannot be bound.
        """
        plan = self._plan
        try:
            self._sockets = await listening_sockets(plan.host, plan.port)
        except OSError as error:
            raise ListenError(
                f"listener {plan.name} of the read endpoint cannot be bound to {plan.host}:{plan.port}: "
                f"{error.strerror or error}",
                remedy="choose another address in kafka.listeners, or end what listens there",
            ) from error
        port: int = self._sockets[0].getsockname()[1]
        return plan.host, port

    def accept(self, group: asyncio.TaskGroup) -> Iterable[asyncio.Task[None]]:
        """Start the tasks that accept, and return them; connections get tasks of ``group`` as well."""
        return [
            group.create_task(self._accept(each, group), name=f"kafka accept {self._plan.name}")
            for each in self._sockets
        ]

    def close(self) -> None:
        """Close the listening sockets."""
        for each in self._sockets:
            each.close()

    def statistics(self) -> ListenerStatistics:
        """Return the state now."""
        return self._scope.counters.statistics(self._plan.name)

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup) -> None:
        async def serve(connected: socket.socket, place: Connection) -> None:
            address = ClientAddress(_host_of(connected), next(_connection_ids))
            counters = self._scope.counters
            counters.accepted += 1
            counters.connections += 1

            def end(task: asyncio.Task[None]) -> None:  # also of a task that was cancelled before its first step
                self.tasks.discard(task)
                counters.connections -= 1
                self._services.gate.leave(place)
                connected.close()

            task = group.create_task(
                self._serve(connected, place, address), name=f"kafka connection {address.connection_id}"
            )
            self.tasks.add(task)
            task.add_done_callback(end)

        await accept_connections(listening, self._services.gate, serve, clock=self._services.clock, peer=_peer_of)

    async def _serve(self, connected: socket.socket, place: Connection, address: ClientAddress) -> None:
        channel = await self._channel(connected)
        if channel is not None:
            await ClientConnection(channel, place, self._scope, address).serve()

    async def _channel(self, connected: socket.socket) -> Channel | None:
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:  # the client has gone away
            return None
        if self._plan.tls is None:
            return PlainChannel(connected, self._services.slices)
        return TlsChannel(connected, self._services.slices, await self._plan.tls())


def _host_of(connected: socket.socket) -> str:
    try:
        return str(connected.getpeername()[0])
    except OSError:  # the client has gone away; its connection ends at its first step
        return "unknown"


def _peer_of(connected: socket.socket) -> str | None:
    try:
        return peer_of(connected.getpeername()[0])
    except OSError:
        return None
