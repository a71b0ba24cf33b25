"""Fields of records, found in plain Python."""

import struct
from array import array

from tierd.kernels.columns import STEP_RECORDS, BatchColumns, Columns, RecordFault
from tierd.kernels.reference.varints import FaultError, read_field, read_varint, read_varlong, wrap

_TYPES = "qqiiiiii"  # of the arrays of Columns
_HEADER_BYTES = 61
_HEADER = struct.Struct(">qi4xb4xhiqq14xi")  # offset, length, magic, attributes, delta, base and max timestamp, count

Row = tuple[int, ...]  # a number for each of _TYPES


def decode_records(
    payload: bytes | memoryview,
    count: int,
    *,
    base_offset: int = 0,
    base_timestamp_ms: int = 0,
    append_time_ms: int | None = None,
    start: int = 0,
    must_fill: bool = True,
) -> Columns:
    """Find the fields of ``count`` records of magic 2 (log-format 2.3).

    Args:
        payload: records, uncompressed; below 2 GiB.
        count: expected number of records; memory is bound by the bytes, not by ``count``.
        base_offset: offset that the offset deltas are added to.
        base_timestamp_ms: timestamp that the timestamp deltas are added to.
        append_time_ms: the timestamp of all records, if it is the broker's.
        start: position of the first, in ``payload``.
        must_fill: nothing may follow the last one.
    """
    rows: list[Row] = []
    at, fault = start, RecordFault.NONE if count >= 0 else RecordFault.NEGATIVE_COUNT
    try:
        for _ in range(count):
            row, at = _record(payload, at, base_offset, base_timestamp_ms, append_time_ms)
            rows.append(row)
    except IndexError:
        fault = RecordFault.BYTES_END
    except FaultError as error:
        fault = error.fault
    if must_fill and not fault and at != len(payload):
        fault = RecordFault.BYTES_LEFT
    return _columns(rows, at, fault)


def decode_batches(data: bytes | memoryview, *, start: int = 0, at_most: int = STEP_RECORDS) -> BatchColumns:
    """Find the fields of all records of the batches that begin at ``start``, as far as they are plain.

    Decoding stops without an error, at the start of a batch, where the bytes end, at a compressed, legacy, damaged or
    impossible batch, and before there are more records, or more batches, than ``at_most``; ``records.end`` is that
    position. Checksums are not verified.

    Args:
        data: batches; below 2 GiB.
        start: position of the first.
        at_most: largest number of records, and of batches, to decode.
    """
    rows: list[Row] = []
    positions, first_records = array("i"), array("i")
    at = start
    while len(positions) < at_most and (batch := _plain_batch(data, at, at_most - len(rows))) is not None:
        positions.append(at)
        first_records.append(len(rows))
        found, at = batch
        rows += found
    return BatchColumns(_columns(rows, at, RecordFault.NONE), memoryview(positions), memoryview(first_records))


def _plain_batch(data: bytes | memoryview, at: int, room: int) -> tuple[list[Row], int] | None:
    """Return the records of the batch at ``at`` and its end; None unless it is plain, sound, whole and small enough."""
    if len(data) - at < _HEADER_BYTES:
        return None
    base, length, magic, attributes, delta, base_ms, max_ms, count = _HEADER.unpack_from(data, at)
    end = at + 12 + length
    is_whole = at + _HEADER_BYTES <= end <= len(data)
    is_possible = base >= 0 and delta >= 0 and base + delta < 1 << 63
    if magic != 2 or not is_whole or not is_possible or attributes & 7 or not 0 <= count <= room:
        return None
    rows: list[Row] = []
    position = at + _HEADER_BYTES
    try:
        for _ in range(count):
            row, position = _record(data, position, base, base_ms, max_ms if attributes & 8 else None)
            rows.append(row)
    except (IndexError, FaultError):
        return None
    return (rows, end) if position == end else None


def _columns(rows: list[Row], end: int, fault: RecordFault) -> Columns:
    fields: list[tuple[int, ...]] = list(zip(*rows, strict=True)) or [()] * len(_TYPES)
    columns = (memoryview(array(kind, values)) for kind, values in zip(_TYPES, fields, strict=True))
    return Columns(end, fault, *columns)


def _record(
    data: bytes | memoryview, at: int, base_offset: int, base_timestamp_ms: int, append_time_ms: int | None
) -> tuple[Row, int]:
    length, at = read_varint(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise FaultError(RecordFault.RECORD_SIZE)
    timestamp_delta_ms, at = read_varlong(data, at + 1)  # one byte of attributes before it, unused
    offset_delta, at = read_varint(data, at)
    key_start, key_size, at = read_field(data, at, end)
    value_start, value_size, at = read_field(data, at, end)
    header_count, at = read_varint(data, at)
    if header_count < 0 or header_count > max(end - at, 0):
        raise FaultError(RecordFault.HEADER_COUNT)
    headers_start = at
    for _ in range(header_count):
        _, name_size, at = read_field(data, at, end)
        if name_size < 0:
            raise FaultError(RecordFault.HEADER_NAME)
        _, _, at = read_field(data, at, end)
    if at != end:
        raise FaultError(RecordFault.NOT_FILLED)
    offset = wrap(base_offset + offset_delta)
    timestamp_ms = wrap(base_timestamp_ms + timestamp_delta_ms) if append_time_ms is None else append_time_ms
    return (offset, timestamp_ms, key_start, key_size, value_start, value_size, headers_start, header_count), at
