"""EndpointLimits: bounds of the endpoint on connections, sizes, memory and time."""

from dataclasses import dataclass
from typing import Final

LOGIN_FRAME_BYTES: Final = 64 << 10
"""Size of the largest frame of a client that is not known yet."""

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLimits:
    """Bounds of one endpoint.

    Attributes:
        connections: of all listeners at a time.
        connections_per_peer: of one client address at a time.
        kept_files: local segments that stay open for a short time after they were sent.
        request_bytes: size of the largest request.
        memory_bytes: of all requests and answers at a time; a quarter is for requests, the rest for answers. One client
            address gets half of either at most.
        answer_memory_bytes: memory of one answer; a Fetch for more gets as many records as fit. A slice of a local file
            takes none.
        idle_timeout_s: time without a request after which a connection is closed.
        login_timeout_s: time from the beginning of a connection until its client is known, TLS and login included.
        request_timeout_s: time from the first byte of a request to its last one.
        send_timeout_s: time in which a client takes the next part of an answer, ``STEP_BYTES`` of it or the rest.
        stop_timeout_s: time that answers under way have when the endpoint stops.
        slow_request_s: requests that take longer are logged; the time that a Fetch waits for records does not count.
    """

    connections: int = 2000
    connections_per_peer: int = 1000
    kept_files: int = 256
    request_bytes: int = 4 * _MIB
    memory_bytes: int = 256 * _MIB
    answer_memory_bytes: int = 16 * _MIB
    idle_timeout_s: float = 600.0
    login_timeout_s: float = 30.0
    request_timeout_s: float = 30.0
    send_timeout_s: float = 30.0
    stop_timeout_s: float = 5.0
    slow_request_s: float = 1.0
