"""ConnectionGate: the connections that a port may have, in all and per peer, and the one that is cut for another.

::

    accepted ──► waiting for a request ──► answering ──► waiting for a request …
                  │ request_timeout_s       │ answer_timeout_s
                  └──── cut ◄───────────────┘

A deadline is set at the beginning of a state; bytes that arrive do not move the deadline.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Protocol

from tierd.clock import Clock

CONNECTIONS_WHEN_SHORT = 4
"""Places that remain while descriptors are short, so that probes and scrapes still show the shortage."""

_WATCH_INTERVAL_S = 1.0
_IPV4 = 4
_IPV6_NETWORK_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one port.

    Attributes:
        connections: connections at a time.
        per_peer: connections of one peer at a time.
        request_timeout_s: time from the beginning of a connection, or the end of an answer, to a whole request.
        answer_timeout_s: time from a whole request until the peer has taken the answer.
    """

    connections: int
    per_peer: int
    request_timeout_s: float = 10.0
    answer_timeout_s: float = 30.0


class Abortable(Protocol):
    """A transport of asyncio, or anything else that ends a connection at once."""

    def abort(self) -> None:
        """Close the connection; bytes that its peer has not taken are dropped."""


class Connection:
    """Place of one connection in a gate."""

    __slots__ = ("_transport", "deadline_s", "is_answering", "is_cut", "may_yield", "peer", "since_s", "was_answered")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.is_answering = False
        self.may_yield = False
        self.was_answered = False
        self.is_cut = False
        self.since_s = 0.0
        self.deadline_s = 0.0
        self._transport: Abortable | None = None

    def attach(self, transport: Abortable) -> None:
        """Set the transport; abort it at once if the connection was cut before."""
        self._transport = transport
        if self.is_cut:
            transport.abort()

    def cut(self) -> None:
        """Close the connection at once; bytes that its peer has not taken are dropped."""
        self.is_cut = True
        if self._transport is not None:
            self._transport.abort()


class ConnectionGate:
    """Places of one port."""

    def __init__(self, limits: ConnectionLimits, *, clock: Clock, is_short: Callable[[], bool]) -> None:
        """Grant places within ``limits``, and few while ``is_short`` says that descriptors run out."""
        self._limits = limits
        self._clock = clock
        self._is_short = is_short
        self._connections: set[Connection] = set()
        self._occupied = asyncio.Event()
        self.refused = 0
        """Number of connections that found no place, since the start."""

    @property
    def connections(self) -> int:
        """Return the number of places that are taken."""
        return len(self._connections)

    def admit(self, peer: str) -> Connection | None:
        """Return a place, or None when each is taken by a connection that is being answered.

        A connection that waits for a request is cut for a new one, first of all one that never had an answer. If
        ``peer`` has as many connections as one peer may have, its longest waiting one is cut. If the port is full, the
        peer with most connections loses its longest waiting one; if none waits, a peer with more connections than
        ``peer`` loses the one whose answer may yield for longest.
        """
        own = [connection for connection in self._connections if connection.peer == peer]
        if len(own) >= self._limits.per_peer and not self._evict(own):
            return self._refuse()
        limit = self._limits.connections
        if self._is_short():
            limit = min(limit, CONNECTIONS_WHEN_SHORT)
        while len(self._connections) >= limit:
            if not self._evict(self._connections) and not self._evict_yielding(peer):
                return self._refuse()
        connection = Connection(peer)
        self._connections.add(connection)
        self._occupied.set()
        self.begin_request(connection)
        return connection

    def begin_request(self, connection: Connection, *, timeout_s: float | None = None) -> None:
        """Note that the connection waits for its next request, for ``timeout_s`` or as the limits say."""
        self._enter(connection, self._limits.request_timeout_s if timeout_s is None else timeout_s, is_answering=False)

    def begin_answer(self, connection: Connection, *, timeout_s: float | None = None, may_yield: bool = False) -> None:
        """Note that the connection is being answered: until ``begin_request`` it is not cut for another.

        The deadline is that of the limits, or comes after ``timeout_s``, which may be infinite. With ``may_yield`` the
        answer takes as long as the client likes, and clients that have fewer connections come first.
        """
        self._enter(connection, self._limits.answer_timeout_s if timeout_s is None else timeout_s, is_answering=True)
        connection.may_yield, connection.was_answered = may_yield, True

    def leave(self, connection: Connection) -> None:
        """Give the place back; a second call does nothing."""
        self._connections.discard(connection)
        if not self._connections:
            self._occupied.clear()

    def cut_waiting(self) -> None:
        """Cut every connection that is not being answered."""
        for connection in [each for each in self._connections if not each.is_answering]:
            self._cut(connection)

    def cut_overdue(self) -> None:
        """Cut every connection whose deadline has passed."""
        now_s = self._clock.monotonic_s()
        for connection in [each for each in self._connections if each.deadline_s <= now_s]:
            self._cut(connection)

    async def watch(self) -> None:
        """Cut connections whose deadline has passed, until cancelled. An empty gate has no timer."""
        while True:
            await self._occupied.wait()
            await self._clock.sleep(_WATCH_INTERVAL_S)
            self.cut_overdue()

    def _enter(self, connection: Connection, timeout_s: float, *, is_answering: bool) -> None:
        connection.is_answering, connection.may_yield = is_answering, False
        connection.since_s = self._clock.monotonic_s()
        connection.deadline_s = connection.since_s + timeout_s

    def _evict(self, among: Iterable[Connection]) -> bool:
        counts = Counter(connection.peer for connection in self._connections)
        waiting = [connection for connection in among if not connection.is_answering]
        if not waiting:
            return False
        self._cut(max(waiting, key=lambda each: (not each.was_answered, counts[each.peer], -each.since_s)))
        return True

    def _evict_yielding(self, peer: str) -> bool:
        counts = Counter(connection.peer for connection in self._connections)
        yielding = [each for each in self._connections if each.may_yield and counts[each.peer] > counts[peer] + 1]
        if not yielding:
            return False
        self._cut(max(yielding, key=lambda each: (counts[each.peer], -each.since_s)))
        return True

    def _refuse(self) -> Connection | None:
        self.refused += 1
        return None

    def _cut(self, connection: Connection) -> None:
        self.leave(connection)
        connection.cut()


def peer_of(address: str) -> str:
    """Return the name of a peer: an IPv4 address, or an IPv6 network of 64 bits, since one host may have all of it.

    This host is one peer, since each of its users has all addresses of the loopback network.
    """
    host = address.partition("%")[0]  # without the zone of a link-local address
    try:
        found = ip_address(host)
    except ValueError:
        return host
    if found.is_loopback:
        return "this host"
    return host if found.version == _IPV4 else str(ip_network((found, _IPV6_NETWORK_BITS), strict=False))
