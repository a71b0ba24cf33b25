"""Rows of a store, compiled."""

import numpy as np

from tierd.kernels.arrays import Numbers, PackedRows
from tierd.kernels.compiled.jit import BYTES, compile_for
from tierd.kernels.compiled.varints import write_big_endian, write_bytes
from tierd.kernels.reference.rows import TIMESTAMP_BYTES

_DIGIT_BYTES = 7  # of a key, that are compared at a time
_FEW = 12  # rows that are sorted by insertion
_NO_ROOM = -1
_MOST_SPANS = 128  # more than wait at a time when 2 ** 31 rows are sorted
_MASK = np.uint64(0xFF)


@compile_for(f"int64(uint8[::1], {BYTES}, int32[:, ::1], int64[::1], int32[:, ::1])")
def _pack(out: np.ndarray, data: np.ndarray, fields: np.ndarray, timestamps_ms: np.ndarray, sizes: np.ndarray) -> int:
    """Fill ``out`` and the ``sizes`` of keys and values, -2 for a record that is left out.

    ``fields`` are four columns: start and size of each key and of each value. Without timestamps there are none.

    Returns:
        The end of the last row; ``_NO_ROOM``, or -2 minus the index of a record whose fields are not in the data.
    """
    at = 0
    for index in range(fields.shape[1]):
        key_start, key_size = int(fields[0, index]), int(fields[1, index])
        value_start, value_size = int(fields[2, index]), int(fields[3, index])
        if key_size < 0:
            sizes[0, index] = sizes[1, index] = -2
            continue
        if (key_size and (key_start < 0 or key_start + key_size > data.size)) or (
            value_size > 0 and (value_start < 0 or value_start + value_size > data.size)
        ):
            return -2 - index
        extra = TIMESTAMP_BYTES if timestamps_ms.size and value_size >= 0 else 0
        if at + key_size + max(value_size, 0) + extra > out.size:
            return _NO_ROOM
        if key_size:
            at = write_bytes(out, at, data, key_start, key_start + key_size)
        if extra:
            at = write_big_endian(out, at, timestamps_ms[index], TIMESTAMP_BYTES)
        if value_size > 0:
            at = write_bytes(out, at, data, value_start, value_start + value_size)
        sizes[0, index] = key_size
        sizes[1, index] = value_size + extra if value_size >= 0 else -1
    return at


@compile_for(f"uint64({BYTES}, int64, int64)")
def _digit(data: np.ndarray, at: int, end: int) -> np.uint64:
    """Return the next bytes of a key, then how many are left, one more standing for all more: compared as the keys."""
    left = end - at
    value = np.uint64(0)
    if left >= _DIGIT_BYTES:
        for index in range(_DIGIT_BYTES):
            value = value << np.uint64(8) | np.uint64(data[at + index])
        return value << np.uint64(8) | np.uint64(min(left, _DIGIT_BYTES + 1))
    for index in range(left):
        value = value << np.uint64(8) | np.uint64(data[at + index])
    return value << np.uint64(8 * (_DIGIT_BYTES - left) + 8) | np.uint64(left)


@compile_for("void(uint64[::1], int32[::1], int64, int64)")
def _insert(digits: np.ndarray, order: np.ndarray, first: int, end: int) -> None:
    """Sort few rows by their digits."""
    for index in range(first + 1, end):
        digit, row = digits[index], order[index]
        place = index
        while place > first and digits[place - 1] > digit:
            digits[place], order[place] = digits[place - 1], order[place - 1]
            place -= 1
        digits[place], order[place] = digit, row


@compile_for("UniTuple(int64, 2)(uint64[::1], int32[::1], int64, int64, uint64)")
def _partition(digits: np.ndarray, order: np.ndarray, first: int, end: int, pivot: np.uint64) -> tuple[int, int]:
    """Move lower digits to the begin and higher ones to the end; return the bounds of those that are equal."""
    lower, index, higher = first, first, end
    while index < higher:
        digit, row = digits[index], order[index]
        if digit < pivot:
            digits[index], order[index] = digits[lower], order[lower]
            digits[lower], order[lower] = digit, row
            lower += 1
            index += 1
        elif digit > pivot:
            higher -= 1
            digits[index], order[index] = digits[higher], order[higher]
            digits[higher], order[higher] = digit, row
        else:
            index += 1
    return lower, higher


@compile_for("uint64(uint64[::1], int64, int64)")
def _pivot(digits: np.ndarray, first: int, end: int) -> np.uint64:
    """Return the median of three digits, from places that the order of the rows does not suggest."""
    seed = np.uint64(first + 1) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(end) * np.uint64(0xC2B2AE3D27D4EB4F)
    size = np.uint64(end - first)
    a = digits[first + int((seed >> np.uint64(33)) % size)]
    b = digits[first + int((seed >> np.uint64(17)) % size)]
    c = digits[first + int(seed % size)]
    return max(min(a, b), min(max(a, b), c))


@compile_for("int64(int32[::1], int64, int64)")
def _keep_last(order: np.ndarray, first: int, end: int) -> int:
    """Replace all but the highest of the rows of one key by -1; return how many."""
    last = order[first]
    for index in range(first, end):
        last = max(last, order[index])
        order[index] = -1
    order[first] = last
    return end - first - 1


@compile_for("int64(int64[:, ::1], int64, int64, int64, int64)")
def _push(spans: np.ndarray, count: int, first: int, end: int, position: int) -> int:
    """Add a span of two rows or more; return the number of spans."""
    if end - first < 2:
        return count
    spans[count, 0], spans[count, 1], spans[count, 2] = first, end, position
    return count + 1


@compile_for(f"void({BYTES}, int32[:, ::1], uint64[::1], int32[::1], int64)")
def _read_digits(data: np.ndarray, keys: np.ndarray, digits: np.ndarray, order: np.ndarray, position: int) -> None:
    """Fill the digits at ``position`` of the keys of some rows."""
    for index in range(order.size):
        start = int(keys[0, order[index]])
        digits[index] = _digit(data, start + position, start + int(keys[1, order[index]]))


@compile_for(f"int64({BYTES}, int32[:, ::1], int32[::1])")
def _sort(data: np.ndarray, keys: np.ndarray, order: np.ndarray) -> int:
    """Fill ``order`` with the rows by key, -1 for one that a later row of its key replaces; return how many are -1.

    Rows are sorted by one digit of their keys after the other (multikey quicksort, Bentley and Sedgewick 1997). The
    largest part is put off, so that the parts that wait are few. ``keys`` are the columns of their starts and sizes.
    """
    dropped = 0
    digits = np.empty(order.size, dtype=np.uint64)
    for index in range(order.size):
        order[index] = index
    _read_digits(data, keys, digits, order, 0)
    spans = np.empty((_MOST_SPANS, 3), dtype=np.int64)
    count = _push(spans, 0, 0, order.size, 0)
    while count:
        count -= 1
        first, end, position = spans[count, 0], spans[count, 1], spans[count, 2]
        if end - first <= _FEW:
            _insert(digits, order, first, end)
            while first < end:
                stop = first + 1
                while stop < end and digits[stop] == digits[first]:
                    stop += 1
                if stop - first > 1 and digits[first] & _MASK <= _DIGIT_BYTES:
                    dropped += _keep_last(order, first, stop)
                elif stop - first > 1:
                    _read_digits(data, keys, digits[first:stop], order[first:stop], position + _DIGIT_BYTES)
                    count = _push(spans, count, first, stop, position + _DIGIT_BYTES)
                first = stop
            continue
        pivot = _pivot(digits, first, end)
        lower, higher = _partition(digits, order, first, end, pivot)
        following = lower  # end of the equal ones that are left to sort
        if pivot & _MASK <= _DIGIT_BYTES:
            dropped += _keep_last(order, lower, higher)
        else:
            _read_digits(data, keys, digits[lower:higher], order[lower:higher], position + _DIGIT_BYTES)
            following = higher
        is_equal_last = following - lower <= min(lower - first, end - higher)
        is_equal_first = following - lower >= max(lower - first, end - higher)
        if is_equal_first:
            count = _push(spans, count, lower, following, position + _DIGIT_BYTES)
        if lower - first >= end - higher:
            count = _push(spans, count, first, lower, position)
        else:
            count = _push(spans, count, higher, end, position)
        if not is_equal_first and not is_equal_last:
            count = _push(spans, count, lower, following, position + _DIGIT_BYTES)
        if lower - first >= end - higher:
            count = _push(spans, count, higher, end, position)
        else:
            count = _push(spans, count, first, lower, position)
        if is_equal_last and not is_equal_first:
            count = _push(spans, count, lower, following, position + _DIGIT_BYTES)
    return dropped


def pack_rows(
    out: np.ndarray,
    at: int,
    payload: bytes | memoryview,
    keys: tuple[Numbers, Numbers],
    values: tuple[Numbers, Numbers],
    *,
    timestamps_ms: Numbers | None,
) -> PackedRows:
    """Copy keys and values as ``reference.pack_rows`` does."""
    data = np.frombuffer(payload, dtype=np.uint8)
    fields = np.stack([np.asarray(numbers, dtype=np.int32) for numbers in (*keys, *values)])
    count = fields.shape[1]
    times = np.empty(0, np.int64) if timestamps_ms is None else np.array(timestamps_ms, dtype=np.int64)
    if timestamps_ms is not None and times.size != count:
        raise ValueError(f"columns of {count} and {times.size} rows")
    sizes = np.empty((2, count), dtype=np.int32)
    size_bytes = _pack(out[at:], data, fields, times, sizes)
    if size_bytes == _NO_ROOM:
        raise ValueError(f"rows have no room in {out.size} bytes")
    if size_bytes < 0:
        raise ValueError(f"a field of record {-2 - size_bytes} reaches beyond the {data.size} of the payload")
    if count and sizes[0].min() < 0:
        sizes = sizes[:, sizes[0] >= 0]
    return PackedRows(at + size_bytes, sizes[0], sizes[1])


def latest_in_order(payload: bytes | memoryview, starts: Numbers, key_sizes: Numbers) -> np.ndarray:
    """Sort and keep rows as ``reference.latest_in_order`` does."""
    data = np.frombuffer(payload, dtype=np.uint8)
    keys = np.stack([np.asarray(numbers, dtype=np.int32) for numbers in (starts, key_sizes)])
    places, sizes = keys
    is_beyond = (sizes > 0) & ((places < 0) | (places.astype(np.int64) + sizes > data.size))
    if (is_beyond | (sizes < 0)).any():
        raise ValueError(f"one of {sizes.size} keys reaches beyond the {data.size} of the payload")
    order = np.empty(sizes.size, dtype=np.int32)
    return order[order >= 0] if _sort(data, keys, order) else order
