"""Ports that take connections: the accept loop, the places of connections, and the certificates of TLS."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.ports.accepting import BACKLOG, accept_connections, listening_sockets
    from tierd.ports.connection_gate import Connection, ConnectionGate, ConnectionLimits, peer_of
    from tierd.ports.loaded_certificates import CertificateMaking, LoadedCertificates
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "BACKLOG",
    "CertificateMaking",
    "Connection",
    "ConnectionGate",
    "ConnectionLimits",
    "LoadedCertificates",
    "accept_connections",
    "listening_sockets",
    "peer_of",
]
