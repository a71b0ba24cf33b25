"""Keys as numbers, compiled."""

import numpy as np

from tierd.kernels.arrays import Numbers
from tierd.kernels.compiled.jit import BYTES, INTS, compile_for

_SECRET = np.dtype("<u8")
_SPREAD_HI, _SPREAD_LO = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_EMPTY = -1


@compile_for("uint64(uint64, uint64)")
def _rotated(word: np.uint64, bits: np.uint64) -> np.uint64:
    return (word << bits) | (word >> (np.uint64(64) - bits))


@compile_for("UniTuple(uint64, 4)(uint64, uint64, uint64, uint64)")
def _round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    v0 += v1
    v1 = _rotated(v1, np.uint64(13)) ^ v0
    v0 = _rotated(v0, np.uint64(32))
    v2 += v3
    v3 = _rotated(v3, np.uint64(16)) ^ v2
    v0 += v3
    v3 = _rotated(v3, np.uint64(21)) ^ v0
    v2 += v1
    v1 = _rotated(v1, np.uint64(17)) ^ v2
    v2 = _rotated(v2, np.uint64(32))
    return v0, v1, v2, v3


@compile_for(f"uint64({BYTES}, uint64, uint64)")
def _word(data: np.ndarray, at: np.uint64, size: np.uint64) -> np.uint64:
    """Return the little-endian number in up to eight bytes."""
    word = np.uint64(0)
    for index in range(size):
        word |= np.uint64(data[at + np.uint64(index)]) << np.uint64(8 * index)
    return word


@compile_for(f"UniTuple(uint64, 2)({BYTES}, uint64, uint64, uint64, uint64)")
def _siphash(
    data: np.ndarray, at: np.uint64, size: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Return the lower and the upper half of the hash."""
    v0, v1 = k0 ^ np.uint64(0x736F6D6570736575), k1 ^ np.uint64(0x646F72616E646F6D ^ 0xEE)
    v2, v3 = k0 ^ np.uint64(0x6C7967656E657261), k1 ^ np.uint64(0x7465646279746573)
    for index in range(size // np.uint64(8) + np.uint64(1)):
        done = np.uint64(8) * np.uint64(index)
        if size - done >= np.uint64(8):
            word = _word(data, at + done, np.uint64(8))
        else:
            word = _word(data, at + done, size - done) | (size << np.uint64(56))
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    lower = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return lower, v0 ^ v1 ^ v2 ^ v3


@compile_for(f"int64({BYTES}, {INTS}, {INTS}, Array(uint64, 1, 'C', readonly=True), uint64[:, ::1])")
def _hash(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, secret: np.ndarray, halves: np.ndarray) -> int:
    """Fill upper and lower ``halves``; return how many keys lie within the data, up to the first that does not."""
    for index in range(starts.size):
        start, size = np.int64(starts[index]), np.int64(sizes[index])
        if size <= 0:
            start = size = np.int64(0)
        if start < 0 or start + size > data.size:
            return index
        lower, upper = _siphash(data, np.uint64(start), np.uint64(size), secret[0], secret[1])
        halves[0, index], halves[1, index] = upper, lower
    return starts.size


@compile_for("int64(Array(int64, 2, 'C', readonly=True), int32[::1], int64[:, ::1])")
def _latest(rows: np.ndarray, table: np.ndarray, found: np.ndarray) -> int:
    """Fill ``found``, like ``rows`` three columns with an upper half, a lower half and a position; return how many.

    ``table`` has a power of two of slots, at least twice as many as there are rows, all empty. A slot holds the index
    of a row of ``found``; the next one is tried when that row has another key.
    """
    count, mask = 0, np.uint64(table.size - 1)
    for index in range(rows.shape[1]):
        upper, lower, position = rows[0, index], rows[1, index], rows[2, index]
        mixed = (np.uint64(upper) * _SPREAD_HI) ^ (np.uint64(lower) * _SPREAD_LO)
        slot = (mixed ^ (mixed >> np.uint64(32))) & mask
        while table[slot] != _EMPTY:
            row = table[slot]
            if found[1, row] == lower and found[0, row] == upper:
                found[2, row] = max(found[2, row], position)
                break
            slot = (slot + np.uint64(1)) & mask
        else:
            table[slot] = count
            found[0, count], found[1, count], found[2, count] = upper, lower, position
            count += 1
    return count


def hash_keys(
    payload: bytes | memoryview, key_start: Numbers, key_size: Numbers, secret: bytes
) -> tuple[np.ndarray, np.ndarray]:
    """Hash keys as ``reference.hash_keys`` does."""
    data = np.frombuffer(payload, dtype=np.uint8)
    starts, sizes = (np.ascontiguousarray(numbers, dtype=np.int32) for numbers in (key_start, key_size))
    if starts.size != sizes.size:
        raise ValueError(f"{starts.size} starts and {sizes.size} sizes of keys")
    if len(secret) != 16:
        raise ValueError(f"a secret of {len(secret)} bytes, SipHash takes 16")
    halves = np.empty((2, starts.size), dtype=np.uint64)
    done = _hash(data, starts, sizes, np.frombuffer(secret, dtype=_SECRET), halves)
    if done < starts.size:
        raise ValueError(f"{sizes[done]} bytes at {starts[done]} reach beyond the {data.size} of the payload")
    upper, lower = halves.view(np.int64)
    return upper, lower


def latest_per_key(hi: Numbers, lo: Numbers, position: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keep one row a key as ``reference.latest_per_key`` does."""
    rows = np.stack([np.asarray(numbers, dtype=np.int64) for numbers in (hi, lo, position)])
    count = rows.shape[1]
    table = np.full(1 << (2 * count).bit_length(), _EMPTY, dtype=np.int32)
    found = np.empty_like(rows)
    keys = _latest(rows, table, found)
    upper, lower, latest = found if keys == count else found[:, :keys].copy()
    return upper, lower, latest
