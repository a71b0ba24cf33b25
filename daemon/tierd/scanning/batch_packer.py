"""BatchPacker: joins small batches to batches of a given size, in order."""

from typing import Final

import pyarrow as pa

_ENOUGH: Final = 3 / 4  # of the size: a batch that is so large is not joined with the next one


class BatchPacker:
    """Packer of one read. A batch is at most ``batch_bytes`` large, unless it was larger before."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch; return the batches that are complete now."""
        packed = []
        if self._waiting and self._waiting_bytes + batch.nbytes > self._batch_bytes:
            packed += self.rest()
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._batch_bytes * _ENOUGH:
            packed += self.rest()
        return packed

    def rest(self) -> list[pa.RecordBatch]:
        """Return what waits, as one batch; none where nothing waits."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if len(waiting) <= 1:
            return waiting
        return pa.Table.from_batches(waiting).combine_chunks().to_batches()
