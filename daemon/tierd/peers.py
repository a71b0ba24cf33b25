"""The user at the other end of a unix socket."""

import os
import socket
import struct

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def is_own_peer(channel: socket.socket) -> bool:
    """Return whether the peer of a connected unix socket is this process's own user, or root."""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return uid in {0, os.geteuid()}
