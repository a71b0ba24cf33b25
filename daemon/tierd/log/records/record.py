"""Record: one record of a batch of magic 2, parsed (log-format 2.3 and 2.4)."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

Header = tuple[str, bytes | None]

_INT_MASK = 0xFFFFFFFF
_LONG_MASK = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer sees it.

    Attributes:
        timestamp_type: ``CreateTime``, ``LogAppendTime``, or ``NoTimestampType`` in magic 0.
        headers: in order; names may repeat.
        leader_epoch: -1 for a batch without one.
    """

    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    leader_epoch: int = -1


class ControlRecordType(IntEnum):
    """Type of a control record; a record of an unknown type is ``UNKNOWN``, kept and ignored."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class RawRecord(NamedTuple):
    """A record before its batch gave it an offset and a time."""

    timestamp_delta_ms: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class RecordError(ValueError):
    """Bytes that are no records."""


def parse_control_type(key: bytes | None) -> ControlRecordType:
    """Return the type of a control record from its key: ``version i16``, ``type i16``.

    Raises:
        RecordError: shorter than four bytes, or a negative version.
    """
    if key is None or len(key) < 4 or key[0] & 0x80:
        raise RecordError("the key of a control record is too short or of a negative version")
    number = int.from_bytes(key[2:4], "big", signed=True)
    return ControlRecordType(number) if 0 <= number <= 6 else ControlRecordType.UNKNOWN


def parse_end_marker(value: bytes | None) -> int:
    """Return the coordinator epoch of an ABORT or COMMIT marker's value: ``version i16``, ``epoch i32``.

    Raises:
        RecordError: shorter than six bytes, or a negative version.
    """
    if value is None or len(value) < 6 or value[0] & 0x80:
        raise RecordError("the value of an end marker is too short or of a negative version")
    return int.from_bytes(value[2:6], "big", signed=True)


def iter_raw_records(data: bytes, count: int) -> Iterator[RawRecord]:
    """Decode exactly ``count`` records, which must fill ``data`` exactly.

    Raises:
        RecordError: a negative count, too few or too many bytes, or a field that does not fit its record.
    """
    if count < 0:
        raise RecordError(f"{count} records")
    at = 0
    for index in range(count):
        try:
            record, at = _record(data, at)
        except IndexError:
            raise RecordError(f"the bytes end inside record {index} of {count}") from None
        yield record
    if at != len(data):
        raise RecordError(f"{len(data) - at} bytes follow the last of {count} records")


def _record(data: bytes, at: int) -> tuple[RawRecord, int]:
    """Decode the record at ``at``.

    ::

        length varint | attributes i8 | timestampDelta varlong | offsetDelta varint
        | keyLength varint, key | valueLength varint, value | headerCount varint, headers
    """
    length, at = _varint(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise RecordError(f"a record of {length} bytes, {len(data) - at} are left")
    timestamp_delta_ms, at = _varlong(data, at + 1)
    offset_delta, at = _varint(data, at)
    key, at = _field(data, at, end)
    value, at = _field(data, at, end)
    count, at = _varint(data, at)
    headers: tuple[Header, ...] = ()
    if count:
        if not 0 < count <= end - at:
            raise RecordError(f"{count} headers")
        headers, at = parse_headers(data, at, end, count)
    if at != end:
        raise RecordError(f"a record of {length} bytes whose fields take {length + at - end}")
    return RawRecord(timestamp_delta_ms, offset_delta, key, value, headers), at


def parse_headers(data: bytes, at: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    """Decode ``count`` headers at ``at``, none of which may reach beyond ``end``; return them and where they end.

    Raises:
        RecordError: a field that does not fit, or a header without a name.
        IndexError: ``data`` ends before them.
    """
    headers: list[Header] = []
    for _ in range(count):
        name, at = _field(data, at, end)
        if name is None:
            raise RecordError("a header without a name")
        value, at = _field(data, at, end)
        headers.append((name.decode("utf-8", errors="replace"), value))  # as the Java client does
    return tuple(headers), at


def _field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    byte = data[at]
    if byte < 0x80:
        length, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        length, at = _varint(data, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > end:
        raise RecordError(f"a field of {length} bytes, {end - at} are left")
    return data[at : at + length], at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, at = _groups(data, at, 5)
    value &= _INT_MASK
    return (value >> 1) ^ -(value & 1), at


def _varlong(data: bytes, at: int) -> tuple[int, int]:
    value, at = _groups(data, at, 10)
    value &= _LONG_MASK
    return (value >> 1) ^ -(value & 1), at


def _groups(data: bytes, at: int, most: int) -> tuple[int, int]:
    value = 0
    for index in range(most):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise RecordError(f"a number of more than {most} bytes")


def as_json_line(record: Record) -> bytes:
    """Return a record as a JSON object with a newline at its end: a contract of ``tierd cat --json`` and of exports.

    docs/formats.md describes the fields.
    """
    line = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
        "leaderEpoch": record.leader_epoch,
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
