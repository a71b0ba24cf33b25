"""Records written anew, compiled."""

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


def _longs(numbers: Numbers) -> np.ndarray:
    return np.ascontiguousarray(numbers, dtype=np.int64)
