"""PushListener: the port of push replication, at which leaders and standbys connect to this daemon."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tierd.clock import Clock
from tierd.errors import ListenError, TierError
from tierd.ports import Connection, ConnectionGate, accept_connections, listening_sockets, peer_of
from tierd.replication.links.frame_memory import FrameMemory
from tierd.replication.links.link_errors import PushLinkError
from tierd.replication.links.link_identity import LinkIdentity
from tierd.replication.links.link_limits import LinkLimits, require_loopback
from tierd.replication.links.link_registry import LinkRegistry
from tierd.replication.links.node_certificates import NodeCertificates
from tierd.replication.links.served_link import LinkFaults, LinkHandler, LinkScope, ServedLink
from tierd.tasks import run_to_end

_TLS_CLOSING_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PushListenPlan:
    """Address of the port, and its security.

    Attributes:
        host: name or address of an interface.
        port: 0 lets the system choose.
        certificates: None without TLS, on the loopback interface only unless ``allow_plaintext``.
    """

    host: str
    port: int
    certificates: NodeCertificates | None
    allow_plaintext: bool = False


@dataclass(frozen=True, slots=True)
class PushListenerStatistics:
    """State of the port, and counts since the start.

    Attributes:
        connections: open ones, with those whose peer is not known yet.
        nodes: links of each known node.
        frame_bytes: memory of large frames that are not answered.
        refused: connections that ended for a fault of the peer, such as a certificate.
        failed: connections that ended for a fault of this side.
        no_place: connections that found no place.
    """

    connections: int
    nodes: Mapping[int, int]
    frame_bytes: int
    refused: int
    failed: int
    no_place: int


class PushListener:
    """The port: ``bind`` first, then ``run``. Made on the event loop."""

    def __init__(
        self,
        plan: PushListenPlan,
        me: LinkIdentity,
        handlers: Mapping[type, LinkHandler],
        gate: ConnectionGate,
        *,
        clock: Clock,
        limits: LinkLimits | None = None,
    ) -> None:
        """Answer as ``me``. A handler is for one type of request, and the Hello announces those that there are.

        ``gate`` is for this port alone; its own deadlines are not used.
        """
        limits = limits or LinkLimits()
        self._plan = plan
        self._gate = gate
        self._scope = LinkScope(
            me,
            dict(handlers),
            gate,
            FrameMemory(limits.memory_bytes),
            LinkRegistry(node_id=me.node_id, links_per_node=limits.links_per_node),
            LinkFaults(clock),
            limits,
            clock,
        )
        self._sockets: list[socket.socket] = []

    async def bind(self) -> tuple[str, int]:
        """Bind every address of the host, and return the host with the port that is in use.

        Raises:
            ListenError: an address cannot be bound, or is not this host's own and there is no TLS.
        """
        plan = self._plan
        try:
            self._sockets = await listening_sockets(plan.host, plan.port)
        except OSError as error:
            raise ListenError(
                f"push.listen cannot be bound to {plan.host}:{plan.port}: {error.strerror or error}",
                remedy="choose another address in push.listen, or end what listens there",
            ) from error
        if plan.certificates is None and not plan.allow_plaintext:
            try:
                for each in self._sockets:
                    require_loopback(each.getsockname()[0], purpose="push.listen on")
            except PushLinkError as error:
                self.close()
                raise ListenError(str(error), remedy=error.remedy) from error
        port: int = self._sockets[0].getsockname()[1]
        return plan.host, port

    async def run(self) -> None:
        """Serve until cancelled; afterwards no socket is open."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._gate.watch(), name="push deadlines")
                for each in self._sockets:
                    tasks.create_task(self._accept(each, tasks), name="push accept")
        finally:
            self.close()

    def close(self) -> None:
        """Close the listening sockets; for an owner that binds and does not run."""
        for each in self._sockets:
            each.close()

    def statistics(self) -> PushListenerStatistics:
        """Return the state now."""
        scope = self._scope
        return PushListenerStatistics(
            self._gate.connections,
            scope.registry.nodes,
            scope.memory.used_bytes,
            scope.faults.refused,
            scope.faults.failed,
            self._gate.refused,
        )

    async def _accept(self, listening: socket.socket, tasks: asyncio.TaskGroup) -> None:
        async def serve(connected: socket.socket, place: Connection) -> None:
            place.attach(_RawSocket(connected))

            def end(_: asyncio.Task[None]) -> None:  # also of a task that was cancelled before its first step
                self._gate.leave(place)
                connected.close()

            task = tasks.create_task(self._serve(connected, place), name="push link")
            task.add_done_callback(end)

        await accept_connections(listening, self._gate, serve, clock=self._scope.clock, peer=_peer_of)

    async def _serve(self, connected: socket.socket, place: Connection) -> None:
        peer = _address_of(connected)
        certificates = self._plan.certificates
        link = ServedLink(peer, place, self._scope, is_certified=certificates is not None)
        try:
            await self._open(link, connected)
        except ssl.SSLError as error:
            self._scope.faults.refuse(peer, f"TLS: {_tls_problem(error)}")
        except (TierError, OSError) as error:
            self._scope.faults.refuse(peer, f"no connection: {str(error) or type(error).__name__}")
        else:
            await link.serve()
        finally:
            link.abort()
            if link.connection.is_made:
                await run_to_end(link.connection.wait_closed(), name="end of a push link")

    async def _open(self, link: ServedLink, connected: socket.socket) -> None:
        """Make the transport of a link."""
        certificates, limits = self._plan.certificates, self._scope.limits
        self._scope.gate.begin_request(link.place, timeout_s=limits.hello_timeout_s)
        with contextlib.suppress(OSError):  # the peer may have gone away: its connection ends at the first step
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        context = None if certificates is None else (await certificates.latest()).server
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: link.connection,
            connected,
            ssl=context,
            ssl_handshake_timeout=None if context is None else limits.hello_timeout_s,
            ssl_shutdown_timeout=None if context is None else _TLS_CLOSING_S,
        )


class _RawSocket:
    """Socket whose transport is not made yet, as the gate ends it: the handshake meets the end of the stream."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._connected.shutdown(socket.SHUT_RDWR)


def _tls_problem(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


def _address_of(connected: socket.socket) -> str:
    try:
        return str(connected.getpeername()[0])
    except OSError:
        return "unknown"


def _peer_of(connected: socket.socket) -> str | None:
    try:
        return peer_of(connected.getpeername()[0])
    except OSError:
        return None
