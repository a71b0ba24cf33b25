"""KeyMap: the latest offset of every key of a log's dirty part, in bounded memory (log-format 9.2)."""

from typing import Final

import numpy as np

from tierd.kernels import latest_per_key
from tierd.pipeline.rewriting import KeyColumns, RecordRows, keys_of

BYTES_PER_KEY: Final = 96
"""Memory that a key takes at most: its hash and offset, and room to sort it among the others."""


class KeyMap:
    """Map from 128-bit hashes of keys, under a secret, to the largest offset noted. Equal hashes are one key."""

    def __init__(self, max_keys: int, *, secret: bytes) -> None:
        """Begin without a key; there is room for at least one.

        Args:
            max_keys: number of keys that are noted at most.
            secret: 16 bytes, so that a producer cannot prepare two keys of one hash.
        """
        self._max_keys = max(1, max_keys)
        self._secret = secret
        self._hi, self._lo, self._offset = np.zeros((3, 0), dtype=np.int64)  # ascending by (hi, lo)
        self._waiting: list[KeyColumns] = []
        self._waiting_count = 0

    def __len__(self) -> int:
        return self._hi.size

    def add(self, columns: KeyColumns) -> int | None:
        """Note keys whose offsets are above those of all earlier calls.

        Returns:
            The first offset without room, from which on nothing was noted; None while all merged keys had room.
        """
        self._waiting.append(columns)
        self._waiting_count += len(columns)
        # Merging sorts everything: seldom enough, it costs the same for every record.
        return self.merge() if self._waiting_count >= max(self._hi.size, 1) else None

    def merge(self) -> int | None:
        """Note the keys that wait; return as ``add``."""
        waiting, self._waiting, self._waiting_count = self._waiting, [], 0
        if not waiting:
            return None
        hi = np.concatenate([one.hash_hi for one in waiting])
        lo = np.concatenate([one.hash_lo for one in waiting])
        offset = np.concatenate([one.offset for one in waiting])
        is_new = (self._find(hi, lo) < 0) & _first_of_key(hi, lo)
        is_over = self._hi.size + np.cumsum(is_new) > self._max_keys
        end = int(np.argmax(is_over)) if is_over.any() else offset.size
        found = latest_per_key(
            np.concatenate((self._hi, hi[:end])),
            np.concatenate((self._lo, lo[:end])),
            np.concatenate((self._offset, offset[:end])),
        )
        order = np.lexsort((found[1], found[0]))
        self._hi, self._lo, self._offset = (column[order] for column in found)
        return int(offset[end]) if end < offset.size else None

    def keeps(self, rows: RecordRows) -> np.ndarray:
        """Return which records are not superseded by a noted offset of their key: bool[n]; true for keyless records."""
        kept = np.ones(rows.size, dtype=np.bool_)
        keys = keys_of(rows, self._secret)
        if not len(keys) or not self._hi.size:
            return kept
        at = self._find(keys.hash_hi, keys.hash_lo)
        kept[rows.key_size >= 0] = (at < 0) | (keys.offset >= self._offset[at])
        return kept

    def _find(self, hi: np.ndarray, lo: np.ndarray) -> np.ndarray:
        """Return the place at which each key is noted, int64[n]; -1 for a key that is not noted."""
        found = np.full(hi.size, -1, dtype=np.int64)
        if not self._hi.size:
            return found
        at = np.searchsorted(self._hi, hi)
        asked = np.arange(hi.size)
        while asked.size:  # once, unless two keys share half of their hash
            place = at[asked]
            inside = place < self._hi.size
            asked, place = asked[inside], place[inside]
            same_half = self._hi[place] == hi[asked]
            asked, place = asked[same_half], place[same_half]
            is_key = self._lo[place] == lo[asked]
            found[asked[is_key]] = place[is_key]
            asked = asked[~is_key]
            at[asked] += 1
        return found


def _first_of_key(hi: np.ndarray, lo: np.ndarray) -> np.ndarray:
    """Return which rows are the first of their key: bool[n]."""
    order = np.lexsort((np.arange(hi.size), lo, hi))
    sorted_hi, sorted_lo = hi[order], lo[order]
    begins = np.ones(hi.size, dtype=np.bool_)
    begins[1:] = (sorted_hi[1:] != sorted_hi[:-1]) | (sorted_lo[1:] != sorted_lo[:-1])
    first = np.zeros(hi.size, dtype=np.bool_)
    first[order[begins]] = True
    return first
