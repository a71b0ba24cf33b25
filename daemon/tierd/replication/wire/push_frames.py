"""Frames of push replication: heads and messages (push-replication 3.1).

::

    request:   int32 size | api key int16 | version int16 | correlation id int32 | client id | tags | message
    response:  int32 size | correlation id int32 | tags | message          (Hello: without tags)
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from tierd.errors import DamagedMessageError
from tierd.replication.model.messages import PushApi, RecordBytes
from tierd.replication.wire.frame_reader import FrameReader
from tierd.replication.wire.frame_writer import FrameWriter
from tierd.replication.wire.message_fields import read_tags
from tierd.replication.wire.message_schemas import SCHEMAS, PushRequest, PushResponse

MIN_FRAME_BYTES: Final = 8
MAX_FRAME_BYTES: Final = 100 << 20
VERSION: Final = 0
"""Version of every API."""

_HEAD: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
REQUEST_APIS: Final[Mapping[object, PushApi]] = {schema.request.kind: api for api, schema in SCHEMAS.items()}
"""API of each type of request."""


@dataclass(frozen=True, slots=True)
class PushRequestFrame:
    """Request of a peer, decoded."""

    api: PushApi
    correlation_id: int
    client_id: str
    request: PushRequest


def checked_frame_size(size: bytes, *, max_bytes: int = MAX_FRAME_BYTES) -> int:
    """Return the size of the frame behind its four bytes of size.

    Raises:
        DamagedMessageError: no frame has that size.
    """
    size_bytes = int.from_bytes(size, "big", signed=True)
    if not MIN_FRAME_BYTES <= size_bytes <= max_bytes:
        allowed = f"{MIN_FRAME_BYTES} to {max_bytes}"
        raise DamagedMessageError(f"a peer announces a message of {size_bytes} bytes: {allowed} are allowed")
    return size_bytes


def api_of(request: PushRequest) -> PushApi:
    """Return the API of a request."""
    return REQUEST_APIS[type(request)]


def encode_push_request(request: PushRequest, *, correlation_id: int, client_id: str) -> list[RecordBytes]:
    """Return the pieces of a request's frame; record bytes are the caller's own."""
    api, writer, name = api_of(request), FrameWriter(), client_id.encode()
    writer.pack(_HEAD, api, VERSION, correlation_id, len(name))
    writer.raw(name)
    writer.varint(0)
    SCHEMAS[api].request.write(writer, request)
    return writer.finish()


def encode_push_response(api: PushApi, response: PushResponse, *, correlation_id: int) -> list[RecordBytes]:
    """Return the pieces of a response's frame; record bytes are the caller's own."""
    writer = FrameWriter()
    writer.pack(_CORRELATION_ID, correlation_id)
    if api is not PushApi.HELLO:
        writer.varint(0)
    SCHEMAS[api].response.write(writer, response)
    return writer.finish()


def decode_push_request(frame: memoryview) -> PushRequestFrame:
    """Return the request of a frame without its size. Its records are parts of ``frame``.

    Raises:
        DamagedMessageError: the API or the version is not known, or the message is cut short or too long.
    """
    reader = FrameReader(frame)
    key, version, correlation_id, name_bytes = reader.unpack(_HEAD)
    api = next((api for api in SCHEMAS if api == key), None)
    if api is None or version != VERSION:
        raise DamagedMessageError(f"a peer sent api key {key} in version {version}, which tierd does not have")
    client_id = reader.text(name_bytes) if name_bytes >= 0 else ""
    _skip_tags(reader)
    request = cast("PushRequest", SCHEMAS[api].request.read(reader))
    _require_end(reader)
    return PushRequestFrame(api, correlation_id, client_id, request)


def decode_push_response(api: PushApi, frame: memoryview) -> tuple[int, PushResponse]:
    """Return correlation id and response of a frame without its size. Its records are parts of ``frame``.

    Raises:
        DamagedMessageError: the message is cut short or too long.
    """
    reader = FrameReader(frame)
    (correlation_id,) = reader.unpack(_CORRELATION_ID)
    if api is not PushApi.HELLO:
        _skip_tags(reader)
    response = cast("PushResponse", SCHEMAS[api].response.read(reader))
    _require_end(reader)
    return correlation_id, response


def _skip_tags(reader: FrameReader) -> None:
    for _, size_bytes in read_tags(reader):
        reader.skip(size_bytes)


def _require_end(reader: FrameReader) -> None:
    if reader.left_bytes:
        raise reader.damaged(f"{reader.left_bytes} bytes behind its end")
