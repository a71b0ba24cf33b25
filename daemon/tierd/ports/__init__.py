"""Ports that take connections: the accept loop, and the places of connections in all and for each peer."""

from tierd.ports.accepting import BACKLOG, accept_connections, listening_sockets
from tierd.ports.connection_gate import Connection, ConnectionGate, ConnectionLimits, peer_of

__all__ = [
    "BACKLOG",
    "Connection",
    "ConnectionGate",
    "ConnectionLimits",
    "accept_connections",
    "listening_sockets",
    "peer_of",
]
