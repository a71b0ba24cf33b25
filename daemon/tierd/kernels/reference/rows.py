"""Rows of a store in plain Python.

::

    row   key … │ timestamp, 8 bytes, big-endian, of a store that has timestamps │ value …
"""

from array import array
from typing import TYPE_CHECKING

from tierd.kernels.arrays import Numbers, PackedRows, as_array

if TYPE_CHECKING:
    import numpy as np

TIMESTAMP_BYTES = 8


def pack_rows(
    out: "np.ndarray",
    at: int,
    payload: bytes | memoryview,
    keys: tuple[Numbers, Numbers],
    values: tuple[Numbers, Numbers],
    *,
    timestamps_ms: Numbers | None,
) -> PackedRows:
    """Copy keys and values of records into ``out``, a row behind the other; records without a key are left out.

    Args:
        out: uint8[], with room for all rows behind ``at``.
        at: position of the first row in ``out``.
        payload: the bytes that hold the fields.
        keys: int32[n] twice, where each key begins and its size, as in ``Columns``; a negative size is no key.
        values: the same of the values; a negative size deletes the key, and the row is the key alone.
        timestamps_ms: int64[n], which every value begins with; None for values as they are.

    Raises:
        ValueError: columns of different lengths, a field beyond the payload, or no room in ``out``.
    """
    room = out.data
    key_sizes, value_sizes = array("i"), array("i")
    times = [b""] * len(keys[0]) if timestamps_ms is None else map(_timestamp, timestamps_ms.tolist())
    fields = (numbers.tolist() for numbers in (*keys, *values))
    for key_start, key_size, value_start, value_size, time in zip(*fields, times, strict=True):
        if key_size < 0:
            continue
        row = _field(payload, key_start, key_size)
        value = time + _field(payload, value_start, value_size) if value_size >= 0 else None
        row += value or b""
        if at + len(row) > len(room):
            raise ValueError(f"rows have no room in {len(room)} bytes")
        room[at : at + len(row)] = row
        at += len(row)
        key_sizes.append(key_size)
        value_sizes.append(-1 if value is None else len(value))
    return PackedRows(at, as_array(key_sizes), as_array(value_sizes))


def latest_in_order(payload: bytes | memoryview, starts: Numbers, key_sizes: Numbers) -> "np.ndarray":
    """Return the indexes of the last row of each key, int32[k], in the order of the keys.

    Keys are compared as unsigned bytes; a key comes before those that it begins.

    Args:
        payload: the bytes that hold the rows.
        starts: int32[n], position of each row and of its key.
        key_sizes: int32[n], none negative.

    Raises:
        ValueError: columns of different lengths, or a key beyond the payload.
    """
    latest: dict[bytes, int] = {}
    for index, (start, size) in enumerate(zip(starts.tolist(), key_sizes.tolist(), strict=True)):
        if size < 0:
            raise ValueError(f"a key of {size} bytes")
        latest[_field(payload, start, size)] = index
    return as_array(array("i", [latest[key] for key in sorted(latest)]))


def _timestamp(timestamp_ms: int) -> bytes:
    return timestamp_ms.to_bytes(TIMESTAMP_BYTES, "big", signed=True)


def _field(payload: bytes | memoryview, start: int, size: int) -> bytes:
    if size and (start < 0 or start + size > len(payload)):
        raise ValueError(f"{size} bytes at {start} reach beyond the {len(payload)} of the payload")
    return bytes(payload[start : start + size])
