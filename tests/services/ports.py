"""Ports for servers that a test starts, restarts on the same port, or leaves down."""

import fcntl
import os
import socket
import tempfile
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from random import SystemRandom
from typing import Final

_FIRST: Final = 10_240
_END: Final = 32_768  # where the kernel's own choices begin: for clients, and for servers that bind port 0
_START: Final = SystemRandom().randrange(_FIRST, _END)  # test processes that run side by side begin elsewhere

_RESERVATIONS: Final = os.open(
    Path(tempfile.gettempdir(), f"tierd-test-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
)
"""Descriptor of a file that all test processes share. It stays open: to close it would unlock all ports."""

_left = chain(range(_START, _END), range(_FIRST, _START))
_taken: set[int] = set()


def free_port(*offsets: int) -> int:
    """Return a port that is free now, and so are the ones at ``offsets`` above it.

    No client and no server on port 0 gets it later, even while its server is down: the kernel does not choose it. A
    process gets each port once, and no other test process of this user gets it while this process lives.

    Raises:
        RuntimeError: the process had them all, or other processes have them.
    """
    for port in _left:
        wanted = {port, *(port + offset for offset in offsets)}
        if not wanted & _taken and _are_free(wanted) and _reserve(wanted):
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


def _reserve(ports: set[int]) -> bool:
    """Lock a byte for each port in a file that all test processes share; the kernel unlocks them with this process."""
    try:
        for port in ports:
            fcntl.lockf(_RESERVATIONS, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True
