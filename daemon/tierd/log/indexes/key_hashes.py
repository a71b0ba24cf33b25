"""KeyHashes: the hashes of a segment's keys under a secret, so that a job need not read its records for them.

::

    version u8 = 1 | 0 u8[3] | secret id u8[8] | count u32 | base offset i64        (24 bytes)
    hi i64[count] | lo i64[count] | distance u32[count]                              (little-endian, as the header)

A row is a record with a key: the halves of the key's SipHash-128, and its offset as the distance from the base offset.
Offsets ascend. The secret id tells secrets apart, and does not tell the secret.
"""

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from tierd.errors import CorruptIndexError

KEY_ROW_BYTES: Final = 20
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<B3x8sIq")
_SECRET_ID_BYTES: Final = 8
_DOMAIN: Final = b"tierd key secret 1\x00"


def key_secret_id(secret: bytes) -> bytes:
    """Return the 8 bytes by which hashes name the secret that they were made under."""
    return hashlib.sha256(_DOMAIN + secret).digest()[:_SECRET_ID_BYTES]


@dataclass(frozen=True, slots=True, eq=False)
class KeyHashes:
    """Hashed keys of all records of a segment that have a key, ascending in offset.

    Attributes:
        secret_id: of the secret, as ``key_secret_id`` returns it.
        base_offset: of the segment.
        hi: int64[n], upper halves of the hashes.
        lo: int64[n], lower halves.
        distance: uint32[n], from the base offset.

    Raises:
        ValueError: columns of different lengths, or distances that do not ascend.
    """

    secret_id: bytes
    base_offset: int
    hi: np.ndarray = field(repr=False)
    lo: np.ndarray = field(repr=False)
    distance: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        if not len(self.hi) == len(self.lo) == len(self.distance):
            raise ValueError("columns of different lengths")
        if bool((self.distance[1:] <= self.distance[:-1]).any()):
            raise ValueError("offsets do not ascend")

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def size_bytes(self) -> int:
        """Return the size of the encoded form."""
        return _HEADER.size + KEY_ROW_BYTES * len(self)

    def offsets(self, rows: slice) -> np.ndarray:
        """Return the offsets of some rows: int64[m]."""
        found: np.ndarray = self.distance[rows].astype(np.int64) + self.base_offset
        return found

    def to_bytes(self) -> bytes:
        """Return the encoded form."""
        header = _HEADER.pack(_VERSION, self.secret_id, len(self), self.base_offset)
        columns = (self.hi.astype("<i8", copy=False), self.lo.astype("<i8", copy=False))
        return b"".join((header, *(column.tobytes() for column in (*columns, self.distance.astype("<u4", copy=False)))))

    @classmethod
    def from_bytes(cls, data: bytes, base_offset: int, name: str, *, end_offset: int | None = None) -> Self | None:
        """Parse the encoded form, which the result refers to; return None if a later version of tierd wrote it.

        Args:
            data: all of it.
            base_offset: of the segment.
            name: for messages.
            end_offset: last offset of the segment, inclusive; None where it is not known.

        Raises:
            CorruptIndexError: it is damaged, or of another segment.
        """
        if data and data[0] > _VERSION:
            return None
        if len(data) < _HEADER.size:
            raise _corrupt(name, f"{len(data)} bytes are no header")
        version, secret_id, count, base = _HEADER.unpack_from(data)
        if _HEADER.pack(_VERSION, secret_id, count, base) != data[: _HEADER.size]:
            raise _corrupt(name, f"version {version}, or bytes that are not 0 behind it")
        if len(data) != _HEADER.size + KEY_ROW_BYTES * count:
            raise _corrupt(name, f"{len(data)} bytes for {count} keys")
        if base != base_offset:
            raise _corrupt(name, f"base offset {base}, the segment's is {base_offset}")
        hashes = np.frombuffer(data, "<i8", 2 * count, _HEADER.size)
        distance = np.frombuffer(data, "<u4", count, _HEADER.size + hashes.nbytes)
        try:
            found = cls(secret_id, base, hashes[:count], hashes[count:], distance)
        except ValueError as error:
            raise _corrupt(name, str(error)) from error
        if count and end_offset is not None and base + int(distance[-1]) > end_offset:
            raise _corrupt(name, f"offset {base + int(distance[-1])} is behind the segment's end")
        return found


def _corrupt(name: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(f"{name}: {problem}", remedy="the next run that rewrites the segment makes it anew")
