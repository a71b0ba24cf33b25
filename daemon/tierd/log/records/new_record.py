"""NewRecord and Producer: the arguments of the code that writes batches; and the bytes of one record (log-format 2.3).

::

    length varint | attributes i8 = 0 | timestampDelta varlong | offsetDelta varint
    | keyLength varint, key | valueLength varint, value | headerCount varint, headers
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tierd.log.records.record import Header


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write; its place in the batch decides its offset. A timestamp of -1 means no timestamp."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Producer:
    """Producer of a batch, and the sequence number of the batch's first record; all -1 without a producer id."""

    id: int = -1
    epoch: int = -1
    base_sequence: int = -1


NO_PRODUCER = Producer()

_NULL = b"\x01"  # the length -1


def encode_varint(number: int) -> bytes:
    """Return ``number`` as zigzag in base 128, the low group first; the same for 32 and for 64 bits."""
    rest = (number << 1) ^ (number >> 63)
    groups = bytearray()
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    groups.append(rest)
    return bytes(groups)


_KNOWN = 8192  # all numbers of at most two bytes
_VARINTS = tuple(encode_varint(number) for number in range(_KNOWN))


def varint_size_bytes(number: int) -> int:
    """Return the number of bytes that ``encode_varint`` writes for ``number``."""
    return max(((number << 1) ^ (number >> 63)).bit_length() + 6, 7) // 7


def append_record(out: bytearray, record: NewRecord, timestamp_delta_ms: int, offset_delta: int) -> None:
    """Append one record, with its length before it, to ``out``. Hot: a call for each record of a new batch."""
    key, value, headers = record.key, record.value, record.headers
    if key is None:
        key, key_size = b"", _NULL
    else:
        size = len(key)
        key_size = _VARINTS[size] if size < _KNOWN else encode_varint(size)
    if value is None:
        value, value_size = b"", _NULL
    else:
        size = len(value)
        value_size = _VARINTS[size] if size < _KNOWN else encode_varint(size)
    body = b"".join(
        (
            b"\x00",
            _VARINTS[timestamp_delta_ms] if 0 <= timestamp_delta_ms < _KNOWN else encode_varint(timestamp_delta_ms),
            _VARINTS[offset_delta] if 0 <= offset_delta < _KNOWN else encode_varint(offset_delta),
            key_size,
            key,
            value_size,
            value,
            _encode_headers(headers) if headers else b"\x00",
        )
    )
    size = len(body)
    out += _VARINTS[size] if size < _KNOWN else encode_varint(size)
    out += body


def encode_field(content: bytes | None) -> bytes:
    """Return a length, -1 for null, and the bytes."""
    return _NULL if content is None else encode_varint(len(content)) + content


def _encode_headers(headers: Sequence[Header]) -> bytes:
    pieces = [encode_varint(len(headers))]
    for name, value in headers:
        pieces += (encode_field(name.encode()), encode_field(value))
    return b"".join(pieces)


def record_size_bytes(
    timestamp_delta_ms: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] = (),
) -> int:
    """Return the size of what ``append_record`` appends, without encoding it (Kafka: DefaultRecord.sizeInBytes)."""
    size = 1 + varint_size_bytes(timestamp_delta_ms) + varint_size_bytes(offset_delta)
    size += _field_size_bytes(key) + _field_size_bytes(value) + varint_size_bytes(len(headers))
    for name, content in headers:
        size += _field_size_bytes(name.encode()) + _field_size_bytes(content)
    return varint_size_bytes(size) + size


def _field_size_bytes(content: bytes | None) -> int:
    return 1 if content is None else varint_size_bytes(len(content)) + len(content)
