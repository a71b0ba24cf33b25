"""A process without descriptors."""

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Make every new descriptor fail: the lowest free number is beyond the limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        lowest_free = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
