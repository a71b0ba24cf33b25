"""Requests that a store bills for one call: their number and their class."""

from enum import Enum
from typing import NamedTuple


class RequestClass(Enum):
    """Price class of a request; writes and listings usually cost ten times a read, deletions nothing."""

    PUT = "put"
    LIST = "list"
    GET = "get"
    DELETE = "delete"


class Billed(NamedTuple):
    """A number of requests of one class."""

    kind: RequestClass
    requests: int


_SINGLE = {
    "get": RequestClass.GET,
    "head": RequestClass.GET,
    "delete": RequestClass.DELETE,
    "abort": RequestClass.DELETE,
    "list": RequestClass.LIST,
    "list_uploads": RequestClass.LIST,
    "list_versions": RequestClass.LIST,
    "delete_version": RequestClass.DELETE,
    "check": RequestClass.LIST,
    "upload_part": RequestClass.PUT,
    "complete_upload": RequestClass.PUT,
    "abort_upload": RequestClass.DELETE,
}
IN_A_PUT = frozenset({"upload_part", "complete_upload"})
"""Requests that are part of a put; the size of the put gives the number that succeeded."""


def billed_requests(operation: str, size_bytes: int, *, part_size_bytes: int | None) -> tuple[Billed, ...]:
    """Return the requests of one attempt at a call of the object store.

    The number is computed from the call, not counted on the wire: a listing counts as one page.

    Args:
        operation: as ``ObjectStoreCall`` has it.
        size_bytes: of the body that was put.
        part_size_bytes: above which a body goes up in parts, begun and completed by a request each; None: never.
    """
    if operation == "put":
        return (Billed(RequestClass.PUT, puts_of(size_bytes, part_size_bytes=part_size_bytes)),)
    if operation == "replace":
        return (Billed(RequestClass.PUT, 1), Billed(RequestClass.GET, 1))
    kind = _SINGLE.get(operation)
    return (Billed(kind, 1),) if kind else ()


def puts_of(size_bytes: int, *, part_size_bytes: int | None) -> int:
    """Return the number of write requests for one object of ``size_bytes``."""
    if part_size_bytes is None or size_bytes <= part_size_bytes:
        return 1
    return -(-size_bytes // part_size_bytes) + 2
