"""Settings that the clients of every store over HTTP share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTimeouts:
    """Longest waits of an HTTP client.

    Attributes:
        connect_s: for a connection.
        read_s: for the next bytes of the store within a request.
    """

    connect_s: float = 10.0
    read_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLimits:
    """Limits of the uploads to one store.

    Attributes:
        part_size: bytes in one part of a large object; a smaller object goes up in one request.
        max_concurrency: requests with a body at a time, over all uploads.
    """

    part_size: int
    max_concurrency: int = 4
