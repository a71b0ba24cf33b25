"""What the running daemon answers: health, metrics, status and a page over HTTP; control over a unix socket.

Nothing here decides anything: servers are handed functions that give them snapshots, or carry out a command.
"""

from tierd.serve.connection_gate import ConnectionGate, ConnectionLimits
from tierd.serve.control_socket import SOCKET_NAME, ControlHandler, ControlServer, OptionsHandler, request
from tierd.serve.http_server import HttpServer
from tierd.serve.outage import Outage, Service
from tierd.serve.status import StatusSnapshot
from tierd.serve.urgency import by_urgency

__all__ = [
    "SOCKET_NAME",
    "ConnectionGate",
    "ConnectionLimits",
    "ControlHandler",
    "ControlServer",
    "HttpServer",
    "OptionsHandler",
    "Outage",
    "Service",
    "StatusSnapshot",
    "by_urgency",
    "request",
]
