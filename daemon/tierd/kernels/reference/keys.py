"""Keys as numbers, in plain Python."""

import struct
from array import array
from typing import TYPE_CHECKING

from tierd.kernels.arrays import Numbers, as_array

if TYPE_CHECKING:
    import numpy as np

_MASK = 0xFFFFFFFFFFFFFFFF
_WORDS = struct.Struct("<QQ")
_State = tuple[int, int, int, int]


def hash_keys(
    payload: bytes | memoryview, key_start: Numbers, key_size: Numbers, secret: bytes
) -> tuple["np.ndarray", "np.ndarray"]:
    """Hash each key by SipHash-2-4 to 128 bits (Aumasson and Bernstein 2012, and their reference code for 128 bits).

    Args:
        payload: the bytes that hold the keys.
        key_start: int32[n], where each begins, as in ``Columns``.
        key_size: int32[n]; a negative one, of a null key, counts as 0.
        secret: 16 bytes. A producer that does not know it cannot make keys that collide.

    Returns:
        The upper and the lower half of each hash, read as a little-endian number: int64[n] both.

    Raises:
        ValueError: the secret is not of 16 bytes, columns of different lengths, or a key beyond the payload.
    """
    if len(secret) != _WORDS.size:
        raise ValueError(f"a secret of {len(secret)} bytes, SipHash takes {_WORDS.size}")
    words = _WORDS.unpack(secret)
    found = [
        _WORDS.pack(*_siphash(_field(payload, start, size), words))
        for start, size in zip(key_start.tolist(), key_size.tolist(), strict=True)
    ]
    halves = array("q", b"".join(found))
    return as_array(halves[1::2]), as_array(halves[::2])


def latest_per_key(hi: Numbers, lo: Numbers, position: Numbers) -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]:
    """Keep one row a key, with the largest of its positions.

    Args:
        hi: int64[n], upper halves of the keys' hashes.
        lo: int64[n], lower halves.
        position: int64[n], in any order.

    Returns:
        The three columns of as many rows as there are keys, in the order in which the keys first appear: int64[k] each.

    Raises:
        ValueError: columns of different lengths.
    """
    latest: dict[tuple[int, int], int] = {}
    for upper, lower, at in zip(hi.tolist(), lo.tolist(), position.tolist(), strict=True):
        latest[upper, lower] = max(latest.get((upper, lower), at), at)
    return (
        as_array(array("q", [upper for upper, _ in latest])),
        as_array(array("q", [lower for _, lower in latest])),
        as_array(array("q", latest.values())),
    )


def _field(payload: bytes | memoryview, start: int, size: int) -> bytes:
    if size <= 0:
        return b""
    if start < 0 or start + size > len(payload):
        raise ValueError(f"{size} bytes at {start} reach beyond the {len(payload)} of the payload")
    return bytes(payload[start : start + size])


def _siphash(data: bytes, secret: tuple[int, int]) -> tuple[int, int]:
    """Return the lower and the upper half of the hash."""
    k0, k1 = secret
    state = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)
    whole = len(data) & ~7
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56
    for word in (*struct.unpack_from(f"<{whole // 8}Q", data), last):
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _rounds((v0, v1, v2, v3 ^ word), 2)
        state = (v0 ^ word, v1, v2, v3)
    v0, v1, v2, v3 = state
    v0, v1, v2, v3 = _rounds((v0, v1, v2 ^ 0xEE, v3), 4)
    lower = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _rounds((v0, v1 ^ 0xDD, v2, v3), 4)
    return lower, v0 ^ v1 ^ v2 ^ v3


def _rounds(state: _State, count: int) -> _State:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = v0 + v1 & _MASK
        v1 = _rotated(v1, 13) ^ v0
        v0 = _rotated(v0, 32)
        v2 = v2 + v3 & _MASK
        v3 = _rotated(v3, 16) ^ v2
        v0 = v0 + v3 & _MASK
        v3 = _rotated(v3, 21) ^ v0
        v2 = v2 + v1 & _MASK
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK
