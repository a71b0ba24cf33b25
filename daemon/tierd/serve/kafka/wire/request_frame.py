"""Requests of clients: from the bytes of a frame to kio's typed message.

::

    int32 size | int16 api key | int16 version | int32 correlation id | client id | tagged fields | request
                 └──────────────────────── head ────────────────────────────────┘  (KIP-482)

The native decoder sees bytes whose lengths were checked against the frame, and reads no field that is unknown to it.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.schema.request_header.v1 import RequestHeader
from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from tierd.control import require_sound
from tierd.errors import DamagedMessageError
from tierd.serve.kafka.wire.api_table import API_TABLE, API_VERSIONS, SupportedApi

E = TypeVar("E", bound=Entity)

MIN_FRAME_BYTES: Final = 10
"""Size of the smallest frame: a head with no client id."""

MAX_ITEMS: Final = 50_000
"""Elements that the arrays of one request may have together: more are work for a second, and no client's."""

ITEM_BYTES: Final = 128
"""Memory of one element: a small message with a text, with its places in an array and in the allocator."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Head of one request, whose api key is in ``API_TABLE``; the version may be unknown."""

    api: SupportedApi
    version: int
    correlation_id: int
    client_id: str  # empty without one

    @property
    def is_supported(self) -> bool:
        """Return True if the request can be decoded and answered."""
        return self.api.min_version <= self.version <= self.api.max_version

    @property
    def asks_for_versions(self) -> bool:
        """Return True if the request is ApiVersions, which is answered in every version (KIP-511)."""
        return self.api.api_key == API_VERSIONS

    def response_type(self) -> type[ResponsePayload]:
        """Return the class of the answer."""
        return _response_type(self.api.api_key, self.version)


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """One request whose bytes may be decoded.

    Attributes:
        items: elements of its arrays.
        memory_bytes: memory that the request takes with its decoded form, estimated from above.
    """

    head: RequestHead
    items: int
    memory_bytes: int
    _content: bytes
    _body_at: int

    def decoded(self) -> RequestPayload:
        """Return kio's message.

        Raises:
            DamagedMessageError: the bytes are no such request.
        """
        return _decoded(_request_type(self.head), self._content, self._body_at)[0]


def read_head(frame: bytes) -> RequestHead:
    """Read the head of a frame, which is given without its size.

    Raises:
        DamagedMessageError: the head is cut short, or tierd answers no request with its api key.
    """
    require_sound(RequestHeader, frame, 0)
    header, _ = _decoded(RequestHeader, frame, 0)  # the first version: the later one has tagged fields behind it
    api = API_TABLE.get(header.request_api_key)
    if api is None:
        raise DamagedMessageError(f"tierd has no request with api key {header.request_api_key}")
    return RequestHead(api, header.request_api_version, header.correlation_id, header.client_id or "")


def checked_request(head: RequestHead, frame: bytes) -> CheckedRequest:
    """Check a frame with a supported ``head`` before it is decoded. This takes time in proportion to the frame.

    Raises:
        DamagedMessageError: a length does not fit, or the request has more elements than any client's.
    """
    request = _request_type(head)
    header = request.__header_schema__
    content = require_sound(header, frame, 0).content
    _, body_at = _decoded(header, content, 0)
    sound = require_sound(request, content, body_at)
    if sound.items > MAX_ITEMS:
        raise DamagedMessageError(f"{head.api.name} has {sound.items} elements, more than {MAX_ITEMS}")
    return CheckedRequest(head, sound.items, len(frame) + sound.items * ITEM_BYTES, sound.content, body_at)


def _decoded(message: type[E], content: bytes, start: int) -> tuple[E, int]:
    try:
        return entity_reader(message)(content, start)
    except (SerialError, ValueError, OverflowError, LookupError) as error:
        raise DamagedMessageError(f"{message.__name__} of {len(content)} bytes cannot be decoded: {error}") from error


def _request_type(head: RequestHead) -> type[RequestPayload]:
    return _loaded_request(head.api.api_key, head.version)


_loaded_request = cache(load_request_schema)
_response_type = cache(load_response_schema)
