"""Keys on their way through a shuffle: hashes and offsets as packed columns, not one row per key.

::

    block    hi int64[n] | lo int64[n] | distance uint32[n]    of one partition, in one bucket, at most BLOCK_ROWS rows

A distance is counted from the block's ``start_offset``; distances of offsets further apart than that are uint64. Spark
sees pairs of a number and a few tens of kilobytes, so that its cost per row is small per key. It encrypts every byte.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tierd.kernels import latest_per_key
from tierd.pipeline.jobs.task_layout import BucketRange

BLOCK_ROWS: Final = 3276  # 64 KiB: a Python worker holds up to 1000 blocks back before it hands them to Spark
_NEAR_ROW_BYTES: Final = 20
FOLD_ROWS: Final = 1 << 20  # 24 MiB of keys gathered before the superseded ones are taken out


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """Latest offsets of some keys of partition ``index``, packed: ``count`` rows."""

    index: int
    count: int
    start_offset: int
    columns: bytes

    def unpack(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows as (hi, lo, offset), int64 each."""
        hashes = np.frombuffer(self.columns, dtype=np.int64, count=2 * self.count)
        is_near = len(self.columns) == _NEAR_ROW_BYTES * self.count
        dtype = np.uint32 if is_near else np.uint64
        distance = np.frombuffer(self.columns, dtype=dtype, offset=hashes.nbytes)
        return hashes[: self.count], hashes[self.count :], distance.astype(np.int64) + self.start_offset


class LatestKeys:
    """Latest offset of every key that was added, in memory that grows with the number of different keys."""

    def __init__(self, fold_rows: int = FOLD_ROWS) -> None:
        self._smallest_fold = fold_rows
        self._fold_at = fold_rows
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._rows = 0

    def add(self, hi: np.ndarray, lo: np.ndarray, offset: np.ndarray) -> None:
        """Add rows, one per record."""
        self._parts.append((hi, lo, offset))
        self._rows += len(hi)
        if self._rows >= self._fold_at:
            self._fold()
            self._fold_at = max(self._smallest_fold, 2 * self._rows)

    def add_block(self, block: KeyBlock) -> None:
        """Add a block that ``key_blocks`` packed."""
        self.add(*block.unpack())

    @property
    def is_full(self) -> bool:
        """Return True if a fold left over half of ``fold_rows``: most keys differ, and to gather more would not pay."""
        return self._fold_at > self._smallest_fold

    def take(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return one row per key as (hi, lo, offset), int64 each, in no order, and empty this object."""
        if not self._parts:
            nothing = np.empty(0, dtype=np.int64)
            return nothing, nothing, nothing
        self._fold()
        hi, lo, offset = self._parts.pop()
        self._rows, self._fold_at = 0, self._smallest_fold
        return hi, lo, offset

    def _fold(self) -> None:
        hi, lo, offset = map(np.concatenate, zip(*self._parts, strict=True))
        self._parts = [latest_per_key(hi, lo, offset)]
        self._rows = len(self._parts[0][0])


def key_blocks(keys: LatestKeys, *, index: int, buckets: BucketRange) -> Iterator[tuple[int, KeyBlock]]:
    """Empty ``keys`` and yield its rows as (bucket, block); the hash alone decides the bucket within the range."""
    hi, lo, offset = keys.take()
    start_offset, end_offset = (int(offset.min()), int(offset.max())) if len(offset) else (0, 0)
    dtype = np.uint32 if end_offset - start_offset <= np.iinfo(np.uint32).max else np.uint64
    bucket = (hi.view(np.uint64) >> np.uint64(40)) % np.uint64(buckets.count)
    order = np.argsort(bucket.astype(np.uint16), kind="stable")
    hashes = np.stack((hi[order], lo[order]))
    distance = (offset[order] - start_offset).astype(dtype)
    ends = np.cumsum(np.bincount(bucket.astype(np.intp), minlength=buckets.count))
    start = 0
    for number, end in enumerate(ends.tolist()):
        for at in range(start, end, BLOCK_ROWS):
            until = min(at + BLOCK_ROWS, end)
            columns = hashes[:, at:until].tobytes() + distance[at:until].tobytes()
            yield buckets.first + number, KeyBlock(index, until - at, start_offset, columns)
        start = end
