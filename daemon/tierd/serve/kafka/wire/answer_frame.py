"""Answers to clients: from kio's typed response to the pieces of a frame, with records spliced in.

kio's writer gets a stand-in for the records of a partition. The stand-in has their length, so that kio writes the right
length field, and is handed to ``write`` like any bytes; there the records take its place. Record bytes are not copied.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import IO, Any, cast

from kio.schema.api_versions.v0.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i16, i32
from kio.static.protocol import Entity, ResponsePayload

from tierd.serve.kafka.message_versions import is_array, item_type
from tierd.serve.kafka.served.served_log import FileSlice
from tierd.serve.kafka.wire.api_table import SupportedApi
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer, Pieces
from tierd.serve.kafka.wire.request_frame import RequestHead

_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class AnswerFrame:
    """One answer, its size first; the pieces are sent one after the other."""

    pieces: Pieces
    size_bytes: int

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that are in memory, and not in a file."""
        return sum(len(piece) for piece in self.pieces if not isinstance(piece, FileSlice))


def encoded_answer(head: RequestHead, answer: ResponsePayload | FetchAnswer) -> AnswerFrame:
    """Return the frame of the answer to a request with ``head``."""
    response = answer.response if isinstance(answer, FetchAnswer) else answer
    expected = head.response_type()
    assert isinstance(response, expected), f"{type(response)} does not answer {head}"
    buffer = _SplicingBuffer()
    _write(buffer, expected.__header_schema__(correlation_id=i32(head.correlation_id)))
    _write(buffer, _with_stand_ins(answer) if isinstance(answer, FetchAnswer) else response)
    return _frame(buffer.pieces())


def count_items(message: Entity, *, most: int) -> int:
    """Return the number of elements of all arrays of a message, or any number above ``most`` if there are more."""
    count = 0
    for name, has_arrays in _arrays(type(message)):
        items: tuple[Any, ...] = getattr(message, name) or ()
        count += len(items)
        if has_arrays and count <= most:
            for item in items:
                count += count_items(item, most=most - count)
                if count > most:
                    break
    return count


@cache
def _arrays(message: type[Entity]) -> tuple[tuple[str, bool], ...]:
    """Return the names of the arrays of a message, and whether their items have arrays as well."""
    arrays = [(field.name, item_type(field)) for field in fields(message) if is_array(field)]
    return tuple((name, is_dataclass(item) and bool(_arrays(cast("type[Entity]", item)))) for name, item in arrays)


def unsupported_version_answer(head: RequestHead, apis: Iterable[SupportedApi]) -> AnswerFrame:
    """Return the answer to an ApiVersions whose version is unknown: that of version 0, with all that is known."""
    keys = tuple(
        ApiVersion(api_key=i16(api.api_key), min_version=i16(api.min_version), max_version=i16(api.max_version))
        for api in apis
    )
    response = ApiVersionsResponse(error_code=ErrorCode.unsupported_version, api_keys=keys)
    return encoded_answer(replace(head, version=0), response)


def raw_frame(token: bytes) -> AnswerFrame:
    """Return the frame of a token of a login that began with version 0 of SaslHandshake: it has no head."""
    return _frame((token,))


def _frame(pieces: Pieces) -> AnswerFrame:
    size_bytes = sum(len(piece) if not isinstance(piece, FileSlice) else piece.size_bytes for piece in pieces)
    first, *others = pieces
    assert not isinstance(first, FileSlice), "a head comes first"
    return AnswerFrame((size_bytes.to_bytes(_SIZE_BYTES, "big") + first, *others), size_bytes + _SIZE_BYTES)


def _write(buffer: "_SplicingBuffer", message: Entity) -> None:
    entity_writer(type(message))(cast("IO[bytes]", buffer), message)


class _StandIn:
    """Records of one partition, as kio's writer sees them."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = tuple(piece for piece in pieces if not isinstance(piece, bytes) or piece)
        self._size_bytes = sum(len(piece) if isinstance(piece, bytes) else piece.size_bytes for piece in pieces)

    def __len__(self) -> int:
        return self._size_bytes


class _SplicingBuffer:
    """A file as far as kio's writers need one, which keeps records apart from the bytes around them."""

    def __init__(self) -> None:
        self._pieces: list[bytes | FileSlice] = []
        self._bytes = bytearray()

    def write(self, content: bytes | _StandIn) -> None:
        """Append bytes, or the records of a stand-in."""
        if isinstance(content, _StandIn):
            if content.pieces:
                self._pieces += (bytes(self._bytes), *content.pieces)
                self._bytes.clear()
        else:
            self._bytes += content

    def pieces(self) -> Pieces:
        """Return everything that was written, in order."""
        return (*self._pieces, bytes(self._bytes)) if self._bytes else tuple(self._pieces)


def _with_stand_ins(answer: FetchAnswer) -> ResponsePayload:
    response: Any = answer.response  # of any version: their classes have no common base
    by_topic: dict[int, dict[int, _StandIn]] = defaultdict(dict)
    for (topic, partition), pieces in answer.records.items():
        by_topic[topic][partition] = _StandIn(pieces)
    topics = list(response.responses)
    for index, stand_ins in by_topic.items():
        partitions = list(topics[index].partitions)
        for partition, stand_in in stand_ins.items():
            partitions[partition] = replace(partitions[partition], records=stand_in)
        topics[index] = replace(topics[index], partitions=tuple(partitions))
    spliced: ResponsePayload = replace(response, responses=tuple(topics))
    return spliced
