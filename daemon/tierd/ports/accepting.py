"""The accept loop of a port: it takes one connection after the other, if the gate has a place."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import structlog

from tierd.clock import Clock
from tierd.ports.connection_gate import Connection, ConnectionGate

BACKLOG = 64
_REST_S = 1.0  # pause after a failed accept: the listening socket stays readable meanwhile

log = structlog.get_logger()


async def accept_connections(
    listening: socket.socket,
    gate: ConnectionGate,
    serve: Callable[[socket.socket, Connection], Awaitable[None]],
    *,
    clock: Clock,
    peer: Callable[[socket.socket], str | None],
    refusal: bytes = b"",
) -> None:
    """Accept until cancelled.

    Args:
        listening: a socket that does not block; the caller closes it.
        gate: grants the places.
        serve: takes the connection over and returns soon; at the end of the connection it gives the place back.
        clock: for the pause after a failed accept.
        peer: names the peer that a connection counts for; None refuses it.
        refusal: sent to a connection without a place, as far as that is possible at once.
    """
    is_failing = False
    while True:
        await _readable(listening)
        try:
            channel, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            continue
        except OSError as error:  # mostly because no descriptor is left
            if not is_failing:
                log.warning("accept_failed", problem=error.strerror or str(error), connections=gate.connections)
            is_failing = True
            gate.cut_waiting()
            await clock.sleep(_REST_S)
            continue
        is_failing = False
        channel.setblocking(False)
        name = peer(channel)
        connection = None if name is None else gate.admit(name)
        if connection is None:
            _refuse(channel, refusal)
        else:
            await serve(channel, connection)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of ``host``, as asyncio's own servers make them.

    Raises:
        OSError: the name has no address, or an address cannot be bound.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with contextlib.ExitStack() as opened:
        sockets = []
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            listening = opened.enter_context(socket.create_server(address, family=family, backlog=BACKLOG))
            listening.setblocking(False)
            sockets.append(listening)
        opened.pop_all()
    return sockets


def _refuse(channel: socket.socket, refusal: bytes) -> None:
    with channel, contextlib.suppress(OSError):
        if refusal:
            channel.send(refusal)


async def _readable(listening: socket.socket) -> None:
    """Wait for a connection, at least for one round of the loop, so that other tasks run as well."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(listening.fileno(), _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(listening.fileno())


def _settle(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
