"""BatchPacker: joins small batches to batches of a given size, and cuts large ones, in order."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

_ENOUGH: Final = 3 / 4  # of the size: a batch that is so large is not joined with the next one


class BatchPacker:
    """Packer of one read. A batch is at most ``batch_bytes`` large, unless it has a single row."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch; return the batches that are complete now."""
        packed = []
        for part in _cut(batch, self._batch_bytes):
            if self._waiting and self._waiting_bytes + part.nbytes > self._batch_bytes:
                packed += self.rest()
            self._waiting.append(part)
            self._waiting_bytes += part.nbytes
            if self._waiting_bytes >= self._batch_bytes * _ENOUGH:
                packed += self.rest()
        return packed

    def rest(self) -> list[pa.RecordBatch]:
        """Return what waits, as one batch; none where nothing waits."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if len(waiting) <= 1:
            return waiting
        return pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _cut(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts that are small enough; a part is not copied."""
    if batch.nbytes <= limit_bytes or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half), limit_bytes)
    yield from _cut(batch.slice(half), limit_bytes)
