"""What the running daemon answers: health, metrics, status and a page over HTTP; control over a unix socket.

Nothing here decides anything: servers are handed functions that give them snapshots, or carry out a command.
"""

from tierd.serve.control_socket import ControlHandler, ControlServer, OptionsHandler, request
from tierd.serve.http_server import HttpServer
from tierd.serve.status import StatusSnapshot

__all__ = ["ControlHandler", "ControlServer", "HttpServer", "OptionsHandler", "StatusSnapshot", "request"]
