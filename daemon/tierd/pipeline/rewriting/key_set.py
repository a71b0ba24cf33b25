"""KeySet: finds the records of a few keys among many, mostly without a comparison of bytes."""

from collections.abc import Collection

import numpy as np

from tierd.kernels import hash_keys
from tierd.pipeline.rewriting.record_rows import RecordRows

_SECRET = bytes(16)  # keys that collide are compared, so a producer gains nothing by knowing this


class KeySet:
    """Keys with their sizes and hashes, which rule out nearly all records with another key."""

    def __init__(self, keys: Collection[bytes]) -> None:
        """Take the keys; none at all is allowed."""
        self._keys = frozenset(keys)
        ordered = sorted(self._keys)
        sizes = np.array([len(key) for key in ordered], dtype=np.int32)
        starts = np.cumsum(sizes, dtype=np.int32) - sizes
        self._sizes = np.unique(sizes)
        self._hashes = hash_keys(b"".join(ordered), starts, sizes, _SECRET)[1]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def matches(self, rows: RecordRows) -> np.ndarray:
        """Return which records have one of the keys: bool[n]."""
        found = np.zeros(rows.size, dtype=np.bool_)
        candidates = np.flatnonzero(np.isin(rows.key_size, self._sizes))
        if candidates.size:
            starts, sizes = rows.key_start[candidates], rows.key_size[candidates]
            lower = hash_keys(rows.payload, starts, sizes, _SECRET)[1]
            for index in candidates[np.isin(lower, self._hashes)].tolist():
                found[index] = rows.key(index) in self._keys
        return found
