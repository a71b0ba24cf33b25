"""Records written anew, compiled."""

from collections.abc import Sequence

import numpy as np

from tierd.kernels.arrays import Numbers
from tierd.kernels.columns import RecordFault
from tierd.kernels.compiled.jit import BYTES, compile_for
from tierd.kernels.compiled.varints import (
    read_big_endian,
    read_varint,
    varint_size_bytes,
    write_big_endian,
    write_bytes,
    write_varint,
)
from tierd.kernels.reference.rewriting import check_bounds
from tierd.kernels.reference.varints import wrap

_RECORD_SIZE = int(RecordFault.RECORD_SIZE)
_NOT_FILLED = int(RecordFault.NOT_FILLED)
_BYTES_LEFT = int(RecordFault.BYTES_LEFT)

_LONGS = "Array(int64, 1, 'C', readonly=True)"
_CHOICES = "Array(bool, 1, 'C', readonly=True)"

_HEADER_BYTES = 61
_GROWTH_BYTES = 13  # of a record whose timestamp takes ten bytes instead of one, and its length five
_NUMBERS_BYTES = 37  # at most, of a record: length, attributes, two deltas, the sizes of key and value, no headers


@compile_for(f"int64({BYTES}, UniTuple(int64, 2), int64, uint8[::1], int64)")
def _write_shifted(data: np.ndarray, bounds: tuple[int, int], shift_ms: int, out: np.ndarray, at: int) -> int:
    """Write the record whose body has these bounds, its timestamp moved; return where it ends, or minus the fault."""
    body, end = bounds
    delta_ms, rest = read_varint(data, body + 1, 10)
    if rest < 0:
        return rest
    if rest > end:
        return -_NOT_FILLED
    delta_ms += shift_ms
    at = write_varint(out, at, 1 + varint_size_bytes(delta_ms) + end - rest)
    out[at] = data[body]
    at = write_varint(out, at + 1, delta_ms)
    return write_bytes(out, at, data, rest, end)


@compile_for(f"int64({BYTES}, {_CHOICES}, int64, uint8[::1])")
def _select(data: np.ndarray, keep: np.ndarray, shift_ms: int, out: np.ndarray) -> int:
    """Write the kept records to ``out``, neighbours in one piece; return how many bytes, or minus the fault."""
    at = written = run = 0  # run: position of the first kept record that is not written yet
    for is_kept in keep:
        begin = at
        length, body = read_varint(data, at, 5)
        if body < 0:
            return body
        at = body + length
        if length < 0 or at > data.size:
            return -_RECORD_SIZE
        if is_kept and not shift_ms:
            continue
        written = write_bytes(out, written, data, run, begin)
        run = at
        if is_kept:
            written = _write_shifted(data, (body, at), shift_ms, out, written)
            if written < 0:
                return written
    if at != data.size:
        return -_BYTES_LEFT
    return write_bytes(out, written, data, run, at)


@compile_for(f"int64({BYTES}, UniTuple({_LONGS}, 4), {_CHOICES}, uint8[::1], int64[::1])")
def _rewrite(
    data: np.ndarray,
    columns: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    keep: np.ndarray,
    out: np.ndarray,
    ends: np.ndarray,
) -> int:
    """Write batches to ``out`` and their ends to ``ends``; return minus the fault, or 0."""
    bounds, first_record, base_ms, max_ms = columns
    at = 0
    for index in range(ends.size):
        start, end = bounds[index], bounds[index + 1]
        chosen = keep[first_record[index] : first_record[index + 1]]
        count = 0
        for is_kept in chosen:
            count += is_kept
        if count == chosen.size:
            at = write_bytes(out, at, data, start, end)
        elif count:
            shift_ms = read_big_endian(data, start + 27, 8) - base_ms[index]
            size = _select(data[start + _HEADER_BYTES : end], chosen, shift_ms, out[at + _HEADER_BYTES :])
            if size < 0:
                return size
            write_bytes(out, at, data, start, start + _HEADER_BYTES)
            write_big_endian(out, at + 8, size + _HEADER_BYTES - 12, 4)
            write_big_endian(out, at + 17, 0, 5)
            write_big_endian(out, at + 27, base_ms[index], 8)
            write_big_endian(out, at + 35, max_ms[index], 8)
            write_big_endian(out, at + 57, count, 4)
            at += _HEADER_BYTES + size
        ends[index] = at
    return 0


@compile_for(f"int64(uint8[::1], int64, {BYTES}, int64, int64)")
def _write_field(out: np.ndarray, at: int, data: np.ndarray, start: int, size: int) -> int:
    return write_bytes(out, write_varint(out, at, size), data, start, start + max(size, 0))


_COLUMN = "Array(int64, 2, 'C', readonly=True)"


@compile_for(f"int64({_COLUMN}, {_COLUMN}, UniTuple({BYTES}, 3), uint8[::1])")
def _encode(
    deltas: np.ndarray, sizes: np.ndarray, fields: tuple[np.ndarray, np.ndarray, np.ndarray], out: np.ndarray
) -> int:
    """Write records with ``deltas`` of timestamp and offset, fields of ``sizes`` (-1: null); return how many bytes.

    ``fields`` holds all keys, all values and all headers, of which none has no bytes.
    """
    keys, values, headers = fields
    key = value = header = at = 0
    for index in range(deltas.shape[1]):
        stamp, offset = deltas[0, index], deltas[1, index]
        key_size, value_size, header_size = sizes[0, index], sizes[1, index], sizes[2, index]
        size = 1 + varint_size_bytes(stamp) + varint_size_bytes(offset) + header_size
        size += varint_size_bytes(key_size) + max(key_size, 0) + varint_size_bytes(value_size) + max(value_size, 0)
        at = write_varint(out, at, size)
        out[at] = 0
        at = write_varint(out, write_varint(out, at + 1, stamp), offset)
        at = _write_field(out, at, keys, key, key_size)
        at = _write_field(out, at, values, value, value_size)
        at = write_bytes(out, at, headers, header, header + header_size)
        key, value, header = key + max(key_size, 0), value + max(value_size, 0), header + header_size
    return at


def select_records(
    payload: bytes | memoryview, count: int, keep: Numbers, *, timestamp_shift_ms: int = 0
) -> bytes | RecordFault:
    """Keep some records as ``reference.select_records`` does."""
    if count < 0:
        return RecordFault.NEGATIVE_COUNT
    choices = np.ascontiguousarray(keep, dtype=np.bool_)
    if choices.size != count:
        raise ValueError(f"{choices.size} choices for {count} records")
    data, shift_ms = np.frombuffer(payload, dtype=np.uint8), wrap(timestamp_shift_ms)
    growth = _GROWTH_BYTES * int(np.count_nonzero(choices)) if shift_ms else 0
    out = np.empty(data.size + growth, dtype=np.uint8)
    size = _select(data, choices, shift_ms, out)
    return RecordFault(-size) if size < 0 else out[:size].tobytes()


def rewrite_batches(
    data: bytes | memoryview,
    bounds: Numbers,
    first_record: Numbers,
    keep: Numbers,
    timestamps_ms: tuple[Numbers, Numbers],
) -> tuple[memoryview, memoryview] | RecordFault:
    """Keep some records of batches as ``reference.rewrite_batches`` does."""
    starts, _ = check_bounds(data, bounds, first_record, keep, timestamps_ms)
    choices = np.ascontiguousarray(keep, dtype=np.bool_)
    base_ms, max_ms = timestamps_ms
    columns = _longs(bounds), _longs(first_record), _longs(base_ms), _longs(max_ms)
    out = np.empty(starts[-1] - starts[0] + _GROWTH_BYTES * choices.size, dtype=np.uint8)
    ends = np.zeros(len(starts) - 1, dtype=np.int64)
    fault = _rewrite(np.frombuffer(data, dtype=np.uint8), columns, choices, out, ends)
    return RecordFault(-fault) if fault else (out[: ends.max(initial=0)].data, ends.data)


def encode_records(
    offset_delta: Numbers,
    timestamp_delta_ms: Numbers,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[bytes] = (),
) -> bytes:
    """Encode records as ``reference.encode_records`` does."""
    rest = [header or b"\0" for header in headers] if headers else [b"\0"] * len(keys)
    deltas = np.array([timestamp_delta_ms, offset_delta], dtype=np.int64)
    sizes = np.array([_sizes(keys), _sizes(values), _sizes(rest)], dtype=np.int64)
    if sizes.shape[1] != deltas.shape[1]:
        raise ValueError(f"{deltas.shape[1]} records, {sizes.shape[1]} keys and values")
    fields = _joined(keys), _joined(values), _joined(rest)
    out = np.empty(sum(field.size for field in fields) + _NUMBERS_BYTES * len(keys), dtype=np.uint8)
    return out[: _encode(deltas, sizes, fields, out)].tobytes()


def _longs(numbers: Numbers) -> np.ndarray:
    return np.ascontiguousarray(numbers, dtype=np.int64)


def _sizes(fields: Sequence[bytes | None]) -> list[int]:
    return [-1 if field is None else len(field) for field in fields]


def _joined(fields: Sequence[bytes | None]) -> np.ndarray:
    return np.frombuffer(b"".join(filter(None, fields)), dtype=np.uint8)
