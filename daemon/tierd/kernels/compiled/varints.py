"""Numbers of zigzag and base 128, and big-endian ones, in compiled code.

numba keeps what it compiled per file and does not see that a function of another file changed: after a change of this
file, remove the ``__pycache__`` beside it.
"""

import numpy as np

from tierd.kernels.columns import RecordFault
from tierd.kernels.compiled.jit import BYTES, compile_for, move_bytes

_BYTES_END = int(RecordFault.BYTES_END)
_NUMBER_TOO_LONG = int(RecordFault.NUMBER_TOO_LONG)
_FIELD_SIZE = int(RecordFault.FIELD_SIZE)


@compile_for(f"UniTuple(int64, 2)({BYTES}, int64, int64)")
def read_varint(data: np.ndarray, at: int, most: int) -> tuple[int, int]:
    """Return value and end of a zigzag number of at most ``most`` bytes; for a bad one, the end is minus the fault."""
    value = np.uint64(0)
    for index in range(most):
        if at >= data.size:
            return 0, -_BYTES_END
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * index)
        if byte < np.uint64(0x80):
            if most == 5:
                value &= np.uint64(0xFFFFFFFF)
            return int(value >> np.uint64(1)) ^ -int(value & np.uint64(1)), at
    return 0, -_NUMBER_TOO_LONG


@compile_for(f"UniTuple(int64, 2)({BYTES}, int64, int64)")
def read_field(data: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Return size (-1 for null) and start of a field that must end by ``end``; for a bad one, 0 and minus the fault."""
    size, at = read_varint(data, at, 5)
    if at >= 0 and (size < -1 or (size >= 0 and at + size > end)):
        return 0, -_FIELD_SIZE
    return size, at


@compile_for("int64(int64)")
def varint_size_bytes(number: int) -> int:
    """Return the number of bytes that ``write_varint`` writes."""
    rest, size = np.uint64((number << 1) ^ (number >> 63)), 1
    while rest > np.uint64(0x7F):
        rest >>= np.uint64(7)
        size += 1
    return size


@compile_for("int64(uint8[::1], int64, int64)")
def write_varint(out: np.ndarray, at: int, number: int) -> int:
    """Write ``number`` at ``at``, in as few bytes as it takes, and return where it ends."""
    rest = np.uint64((number << 1) ^ (number >> 63))
    while rest > np.uint64(0x7F):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@compile_for(f"int64(uint8[::1], int64, {BYTES}, int64, int64)")
def write_bytes(out: np.ndarray, at: int, data: np.ndarray, start: int, end: int) -> int:
    """Copy ``data[start:end]`` to ``at`` and return where it ends.

    Raises:
        ValueError: the bytes do not lie within ``data``, or their place does not lie within ``out``.
    """
    size = end - start
    if start < 0 or end < start or end > data.size or at < 0 or at > out.size - size:  # no sum that may wrap
        raise ValueError("bytes outside of an array")
    move_bytes(out, at, data, start, size)
    return at + size


@compile_for(f"int64({BYTES}, int64, int64)")
def read_big_endian(data: np.ndarray, at: int, size: int) -> int:
    """Return the signed number in ``size`` bytes."""
    value = int(data[at])
    if value >= 128:
        value -= 256
    for index in range(1, size):
        value = value * 256 + int(data[at + index])
    return value


@compile_for("int64(uint8[::1], int64, int64, int64)")
def write_big_endian(out: np.ndarray, at: int, number: int, size: int) -> int:
    """Write the lower ``size`` bytes of ``number`` at ``at`` and return where they end."""
    for index in range(size):
        out[at + index] = np.uint8(number >> (8 * (size - 1 - index)) & 0xFF)
    return at + size
