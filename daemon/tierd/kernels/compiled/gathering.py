"""Fields of many records brought together, compiled."""

from itertools import pairwise

import numpy as np

from tierd.kernels.arrays import Gathered, GatheredHeaders, Numbers
from tierd.kernels.columns import RecordFault
from tierd.kernels.compiled.jit import BYTES, INTS, compile_for
from tierd.kernels.compiled.varints import read_field, write_bytes
from tierd.kernels.reference.gathering import MOST_BYTES, as_text

_CACHE_LINE_BYTES = 64
_READ_AHEAD = 32  # fields
_MOST_AHEAD_BYTES = 256  # of a field: the processor itself reads ahead in a longer one

_BYTES_END = int(RecordFault.BYTES_END)
_HEADER_NAME = int(RecordFault.HEADER_NAME)


@compile_for(f"int64(int64, {INTS}, {INTS}, int32[::1])")
def _measure(data_size: int, starts: np.ndarray, sizes: np.ndarray, offsets: np.ndarray) -> int:
    """Fill the offsets; return how many fields lie within the data and 32 bits, up to the first that does not."""
    total = 0
    for index in range(sizes.size):
        start, size = int(starts[index]), int(sizes[index])
        if size > 0:
            total += size
            if start < 0 or start + size > data_size or total > MOST_BYTES:
                return index
        offsets[index + 1] = total
    return sizes.size


@compile_for(f"int64({BYTES}, {INTS}, {INTS}, uint8[::1])")
def _copy(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray) -> int:
    """Copy the fields to ``out``; return a number that means nothing, so that the loop that reads ahead stays.

    Fields in no order lie in memory that no cache has. Some are read ahead, so that the processor waits for them at
    the same time and not for one after the other.
    """
    at, seen = 0, 0
    for first in range(0, sizes.size, _READ_AHEAD):
        end = min(first + _READ_AHEAD, sizes.size)
        for index in range(first, end):
            start = int(starts[index])
            for position in range(start, start + min(int(sizes[index]), _MOST_AHEAD_BYTES), _CACHE_LINE_BYTES):
                seen += data[position]
        for index in range(first, end):
            start, size = int(starts[index]), int(sizes[index])
            if size > 0:
                at = write_bytes(out, at, data, start, start + size)
    return seen


@compile_for(f"int64({BYTES}, {INTS}, {INTS}, int32[:, ::1])")
def _find_headers(data: np.ndarray, starts: np.ndarray, counts: np.ndarray, found: np.ndarray) -> int:
    """Fill four columns, start and size of each key and of each value; return the fault."""
    index = 0
    for record in range(counts.size):
        at = int(starts[record])
        for _ in range(counts[record]):
            if at < 0:
                return _BYTES_END
            size, start = read_field(data, at, data.size)
            if start < 0:
                return -start
            if size < 0:
                return _HEADER_NAME
            found[0, index], found[1, index] = start, size
            size, start = read_field(data, start + size, data.size)
            if start < 0:
                return -start
            found[2, index], found[3, index] = start, size
            at = start + max(size, 0)
            index += 1
    return 0


def gather(payload: bytes | memoryview, starts: Numbers, sizes: Numbers) -> Gathered:
    """Gather fields as ``reference.gather`` does."""
    data = np.frombuffer(payload, dtype=np.uint8)
    return _gather(data, *_columns(starts, sizes))


def gather_headers(
    payload: bytes | memoryview, headers_start: Numbers, header_count: Numbers
) -> GatheredHeaders | RecordFault:
    """Gather headers as ``reference.gather_headers`` does."""
    data = np.frombuffer(payload, dtype=np.uint8)
    starts, counts = _columns(headers_start, header_count)
    offsets = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    if counts.min(initial=0) < 0 or 2 * offsets[-1] > data.size:
        return RecordFault.HEADER_COUNT
    found = np.empty((4, offsets[-1]), dtype=np.int32)
    if fault := _find_headers(data, starts, counts, found):
        return RecordFault(fault)
    keys, values = _gather(data, found[0], found[1]), _gather(data, found[2], found[3])
    if keys.data.max(initial=0) > 0x7F:
        content, ends = keys.data.tobytes(), keys.offsets.tolist()
        keys = as_text([content[start:end] for start, end in pairwise(ends)])
    return GatheredHeaders(offsets.astype(np.int32), keys, values)


def _columns(starts: Numbers, numbers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    columns = (np.ascontiguousarray(starts, dtype=np.int32), np.ascontiguousarray(numbers, dtype=np.int32))
    if columns[0].size != columns[1].size:
        raise ValueError(f"columns of {columns[0].size} and {columns[1].size} rows")
    return columns


def _gather(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> Gathered:
    offsets = np.zeros(sizes.size + 1, dtype=np.int32)
    done = _measure(data.size, starts, sizes, offsets)
    if done < sizes.size:
        if starts[done] >= 0 and int(starts[done]) + int(sizes[done]) <= data.size:
            raise ValueError(f"more than {MOST_BYTES} bytes of fields")
        raise ValueError(f"{sizes[done]} bytes at {starts[done]} reach beyond the {data.size} of the payload")
    out = np.empty(offsets[-1], dtype=np.uint8)
    _copy(data, starts, sizes, out)
    return Gathered(offsets, out, np.packbits(sizes >= 0, bitorder="little"))
