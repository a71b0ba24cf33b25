"""Ports for servers that a test starts, restarts on the same port, or leaves down."""

import socket
from contextlib import ExitStack
from itertools import chain
from random import SystemRandom
from typing import Final

_FIRST: Final = 10_240
_END: Final = 32_768  # where the kernel's own choices begin: for clients, and for servers that bind port 0
_START: Final = SystemRandom().randrange(_FIRST, _END)  # test processes that run side by side begin elsewhere

_left = chain(range(_START, _END), range(_FIRST, _START))
_taken: set[int] = set()


def free_port(*offsets: int) -> int:
    """Return a port that is free now, and so are the ones at ``offsets`` above it.

    No client and no server on port 0 gets it later, even while its server is down: the kernel does not choose it. A
    process gets each port once.

    Raises:
        RuntimeError: the process had them all.
    """
    for port in _left:
        wanted = {port, *(port + offset for offset in offsets)}
        if not wanted & _taken and _are_free(wanted):
            _taken.update(wanted)
            return port
    raise RuntimeError(f"no port between {_FIRST} and {_END} is left")


def _are_free(ports: set[int]) -> bool:
    with ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True
