"""Answers to clients: from kio's typed response to the pieces of a frame, with records spliced in.

kio's writer gets a gap for the records of a partition, and the bytes around the gaps are a template::

    template   | topic, partition, watermarks |       gap       | tagged fields |
    frame      | topic, partition, watermarks | length, records | tagged fields |

kio writes the lengths, too. Record bytes are not copied.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import groupby
from typing import IO, Any, cast

from kio.schema.api_versions.v0.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial.writers import write_nullable_compact_string, write_nullable_legacy_bytes
from kio.static.primitive import i16, i32
from kio.static.protocol import Entity, ResponsePayload

from tierd.serve.kafka.message_versions import is_array, item_type
from tierd.serve.kafka.served.served_log import FileSlice
from tierd.serve.kafka.wire.api_table import SupportedApi
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer, Pieces
from tierd.serve.kafka.wire.request_frame import RequestHead

_SIZE_BYTES = 4
_KEPT_BYTES = 512  # of a template: one connection keeps one


@dataclass(frozen=True, slots=True)
class AnswerFrame:
    """One answer, its size first; the pieces are sent one after the other."""

    pieces: Pieces
    size_bytes: int

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that are in memory, and not in a file."""
        return sum(len(piece) for piece in self.pieces if not isinstance(piece, FileSlice))


class AnswerEncoder:
    """Encoder of the answers of one connection.

    A client that reads a log gets answers of which only the records differ. The template of the last small answer to a
    Fetch is kept for the next one: an answer is encoded by it in a quarter of the time.
    """

    def __init__(self) -> None:
        self._kept: _Template | None = None

    def encoded(self, head: RequestHead, answer: ResponsePayload | FetchAnswer) -> AnswerFrame:
        """Return the frame of the answer to a request with ``head``; calls come one after the other."""
        response = answer.response if isinstance(answer, FetchAnswer) else answer
        expected = head.response_type()
        assert isinstance(response, expected), f"{type(response)} does not answer {head}"
        buffer = _SplicingBuffer()
        _write(buffer, expected.__header_schema__(correlation_id=i32(head.correlation_id)))
        if isinstance(answer, FetchAnswer):
            self._template(answer).fill(buffer, answer)
        else:
            _write(buffer, response)
        return _frame(buffer.pieces())

    def _template(self, answer: FetchAnswer) -> "_Template":
        kept = self._kept
        if kept is not None and kept.fits(answer):
            return kept
        made = _Template(answer)
        if answer.records:
            self._kept = made if made.size_bytes <= _KEPT_BYTES else None
        return made


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
    return AnswerEncoder().encoded(replace(head, version=0), response)


def raw_frame(token: bytes) -> AnswerFrame:
    """Return the frame of a token of a login that began with version 0 of SaslHandshake: it has no head."""
    return _frame((token,))


def _frame(pieces: Pieces) -> AnswerFrame:
    size_bytes = sum(len(piece) if not isinstance(piece, FileSlice) else piece.size_bytes for piece in pieces)
    first, *others = pieces
    assert not isinstance(first, FileSlice), "a head comes first"
    return AnswerFrame((size_bytes.to_bytes(_SIZE_BYTES, "big") + first, *others), size_bytes + _SIZE_BYTES)


def _write(buffer: "_SplicingBuffer | _GapBuffer", message: Entity) -> None:
    entity_writer(type(message))(cast("IO[bytes]", buffer), message)


class _Template:
    """An answer to a Fetch as it is encoded, with gaps where the records of partitions are."""

    def __init__(self, answer: FetchAnswer) -> None:
        self._response = answer.response
        self._places = sorted(answer.records)
        self._write_records = (
            write_nullable_compact_string if self._response.__flexible__ else write_nullable_legacy_bytes
        )
        buffer = _GapBuffer()
        _write(buffer, _with_gaps(answer, buffer))
        self._around = buffer.around()
        assert len(self._around) == len(self._places) + 1, "each place in the answer has one gap"

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes around the gaps."""
        return sum(map(len, self._around))

    def fits(self, answer: FetchAnswer) -> bool:
        """Return True if the template is that of an answer, whose records may be others."""
        return self._response == answer.response and self._places == sorted(answer.records)

    def fill(self, buffer: "_SplicingBuffer", answer: FetchAnswer) -> None:
        """Write the answer with its records."""
        buffer.write(self._around[0])
        for place, behind in zip(self._places, self._around[1:], strict=True):
            self._write_records(cast("IO[bytes]", buffer), cast("bytes", _StandIn(answer.records[place])))
            buffer.write(behind)


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


class _Gap:
    """Place of the records of one partition. kio's writer asks for its length before it writes the length."""

    def __init__(self, buffer: "_GapBuffer") -> None:
        self._buffer = buffer

    def __len__(self) -> int:
        self._buffer.begin_gap()
        return 0


class _GapBuffer:
    """A file as far as kio's writers need one, without the lengths of gaps."""

    def __init__(self) -> None:
        self._around: list[bytes] = []
        self._bytes = bytearray()
        self._gap_at = 0

    def begin_gap(self) -> None:
        """Note that the length of a gap comes next."""
        self._gap_at = len(self._bytes)

    def write(self, content: bytes | _Gap) -> None:
        """Append bytes, or end the gap that has begun."""
        if isinstance(content, _Gap):
            self._around.append(bytes(self._bytes[: self._gap_at]))
            self._bytes.clear()
        else:
            self._bytes += content

    def around(self) -> tuple[bytes, ...]:
        """Return the bytes before the first gap, between the gaps, and behind the last one."""
        return (*self._around, bytes(self._bytes))


def _with_gaps(answer: FetchAnswer, buffer: _GapBuffer) -> ResponsePayload:
    response: Any = answer.response  # of any version: their classes have no common base
    topics = list(response.responses)
    for topic, places in groupby(sorted(answer.records), key=lambda place: place[0]):
        partitions = list(topics[topic].partitions)
        for _, partition in places:
            partitions[partition] = replace(partitions[partition], records=_Gap(buffer))
        topics[topic] = replace(topics[topic], partitions=tuple(partitions))
    with_gaps: ResponsePayload = replace(response, responses=tuple(topics))
    return with_gaps
