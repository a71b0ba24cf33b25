"""Fields of records, found by compiled code."""

import numpy as np

from tierd.kernels.columns import SMALLEST_RECORD_BYTES, STEP_RECORDS, BatchColumns, Columns, RecordFault
from tierd.kernels.compiled.jit import BYTES, compile_for
from tierd.kernels.compiled.varints import read_big_endian, read_field, read_varint

_RECORD_SIZE = int(RecordFault.RECORD_SIZE)
_HEADER_COUNT = int(RecordFault.HEADER_COUNT)
_HEADER_NAME = int(RecordFault.HEADER_NAME)
_NOT_FILLED = int(RecordFault.NOT_FILLED)

_HEADER_BYTES = 61


@compile_for(f"int64({BYTES}, int64, int64, int64)")
def _skip_headers(data: np.ndarray, at: int, end: int, count: int) -> int:
    for _ in range(count):
        size, at = read_field(data, at, end)
        if at < 0:
            return at
        if size < 0:
            return -_HEADER_NAME
        size, at = read_field(data, at + size, end)
        if at < 0:
            return at
        at += max(size, 0)
    return at


_OUT = "int64[:, :], int32[:, :]"


@compile_for(f"UniTuple(int64, 3)({BYTES}, int64, int64, {_OUT})")
def _decode(data: np.ndarray, at: int, count: int, longs: np.ndarray, numbers: np.ndarray) -> tuple[int, int, int]:
    """Fill the columns of ``longs`` (2 × count) and ``numbers`` (6 × count), a record each, with deltas for offsets.

    Returns:
        The number of records, the position at which they end, and the fault.
    """
    for index in range(count):
        begin = at
        length, at = read_varint(data, at, 5)
        if at < 0:
            return index, begin, -at
        end = at + length
        if length < 0 or end > data.size:
            return index, begin, _RECORD_SIZE
        timestamp_delta, at = read_varint(data, at + 1, 10)
        if at < 0:
            return index, begin, -at
        offset_delta, at = read_varint(data, at, 5)
        if at < 0:
            return index, begin, -at
        key_size, key_start = read_field(data, at, end)
        if key_start < 0:
            return index, begin, -key_start
        value_size, value_start = read_field(data, key_start + max(key_size, 0), end)
        if value_start < 0:
            return index, begin, -value_start
        headers, at = read_varint(data, value_start + max(value_size, 0), 5)
        if at < 0:
            return index, begin, -at
        if headers < 0 or headers > max(end - at, 0):
            return index, begin, _HEADER_COUNT
        headers_start = at
        if headers:
            at = _skip_headers(data, at, end, headers)
            if at < 0:
                return index, begin, -at
        if at != end:
            return index, begin, _NOT_FILLED
        longs[0, index] = offset_delta
        longs[1, index] = timestamp_delta
        numbers[0, index] = key_start
        numbers[1, index] = key_size
        numbers[2, index] = value_start
        numbers[3, index] = value_size
        numbers[4, index] = headers_start
        numbers[5, index] = headers
    return count, at, 0


@compile_for(f"UniTuple(int64, 3)({BYTES}, int64, {_OUT}, int32[:, :])")
def _walk(
    data: np.ndarray, at: int, longs: np.ndarray, numbers: np.ndarray, batches: np.ndarray
) -> tuple[int, int, int]:
    """Decode batch after batch as far as it goes, ``batches`` (2 × capacity) getting position and first record.

    Returns:
        The number of records, the number of batches, and the position at which they end.
    """
    records, found = 0, 0
    while found < batches.shape[1] and data.size - at >= _HEADER_BYTES:
        base, delta = read_big_endian(data, at, 8), read_big_endian(data, at + 23, 4)
        attributes, count = data[at + 22], read_big_endian(data, at + 57, 4)
        end = at + 12 + read_big_endian(data, at + 8, 4)
        if data[at + 16] != 2 or end < at + _HEADER_BYTES or end > data.size:
            break
        if base < 0 or delta < 0 or base + delta < 0 or attributes & 7 or count < 0 or count > longs.shape[1] - records:
            break
        columns = longs[:, records : records + count]
        _, position, fault = _decode(data, at + _HEADER_BYTES, count, columns, numbers[:, records : records + count])
        if fault or position != end:
            break
        columns[0] += base
        if attributes & 8:
            columns[1] = read_big_endian(data, at + 35, 8)
        else:
            columns[1] += read_big_endian(data, at + 27, 8)
        batches[0, found] = at
        batches[1, found] = records
        found += 1
        records += count
        at = end
    return records, found, at


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
    """Find the fields of records as ``reference.decode_records`` does."""
    data = np.frombuffer(payload, dtype=np.uint8)
    capacity = max(0, min(count, max(0, data.size - start) // SMALLEST_RECORD_BYTES + 1))
    longs, numbers = np.empty((2, capacity), dtype=np.int64), np.empty((6, capacity), dtype=np.int32)
    found, end, fault = _decode(data, start, capacity, longs, numbers)
    longs[0] += base_offset
    if append_time_ms is None:
        longs[1] += base_timestamp_ms
    else:
        longs[1] = append_time_ms
    if not fault:
        if count < 0:
            fault = RecordFault.NEGATIVE_COUNT
        elif must_fill and end != data.size:
            fault = RecordFault.BYTES_LEFT
    return _columns(end, RecordFault(fault), longs[:, :found], numbers[:, :found])


def decode_batches(data: bytes | memoryview, *, start: int = 0, at_most: int = STEP_RECORDS) -> BatchColumns:
    """Find the fields of the records of batches as ``reference.decode_batches`` does."""
    source = np.frombuffer(data, dtype=np.uint8)
    left = max(0, source.size - start)
    capacity = max(0, min(at_most, left // SMALLEST_RECORD_BYTES))
    longs, numbers = np.empty((2, capacity), dtype=np.int64), np.empty((6, capacity), dtype=np.int32)
    batches = np.empty((2, max(0, min(at_most, left // _HEADER_BYTES))), dtype=np.int32)
    records, found, end = _walk(source, start, longs, numbers, batches)
    columns = _columns(end, RecordFault.NONE, longs[:, :records], numbers[:, :records])
    return BatchColumns(columns, batches[0, :found].data, batches[1, :found].data)


def _columns(end: int, fault: RecordFault, longs: np.ndarray, numbers: np.ndarray) -> Columns:
    offset, timestamp_ms = (row.data for row in longs)
    return Columns(end, fault, offset, timestamp_ms, *(row.data for row in numbers))
