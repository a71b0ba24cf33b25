"""The records of one partition as batches of Arrow, made in threads while the store is read ahead."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final, NamedTuple

import pyarrow as pa

from tierd.arrow import ALL, ArrowRows, Range, WantedRecords, rows_of_pieces
from tierd.kernels import compile_kernels_for
from tierd.model import IsolationLevel
from tierd.scanning.row_layout import RowLayout
from tierd.scanning.scan_plan import ScanRange
from tierd.tiering import BatchGroup, FetchTask

_ENOUGH: Final = 3 / 4  # of the size of a batch: one that is so large is not joined with the next one


class ScannedBatch(NamedTuple):
    """Rows of one partition.

    Attributes:
        next_offset: every wanted record below it is in this batch or in one before it.
    """

    batch: pa.RecordBatch
    range: ScanRange
    next_offset: int


async def rows_of_range(
    task: FetchTask, span: ScanRange, isolation: IsolationLevel, layout: RowLayout
) -> AsyncGenerator[ScannedBatch, None]:
    """Yield the records of ``span`` as a consumer sees them, in order, in batches of at most ``layout.batch_bytes``.

    Whatever fails, the rows before the failure are yielded first.

    Raises:
        OffsetOutOfRangeError: offsets are missing, also in the middle of the range or at its end.
        BatchTooLargeError: a batch unpacks to more bytes than tierd opens.
        CorruptRecordError: a local batch is damaged, or records cannot be decoded.
        RemoteIntegrityError: remote bytes are damaged.
        RemoteStorageError: the store did not answer.
    """
    await compile_kernels_for(span.offset_count)
    packer = BatchPacker(layout.batch_bytes)
    rows = ArrowRows(layout.schema, span.partition.topic_partition, batch_bytes=layout.batch_bytes)
    done = span.start_offset
    try:
        batches = task.batches(span.start_offset, span.end_offset, isolation, must_reach_end=True)
        async with aclosing(batches) as groups:
            async for group in groups:
                found = rows_of_group(group, rows)
                while packed := await asyncio.to_thread(_next_packed, found, packer):
                    for batch in packed:
                        yield ScannedBatch(batch, span, done)
                done = min(group.batches.last_offsets[-1] + 1, span.end_offset)
    except Exception:
        for batch in packer.rest():
            yield ScannedBatch(batch, span, done)
        raise
    for batch in packer.rest():
        yield ScannedBatch(batch, span, span.end_offset)


def rows_of_group(group: BatchGroup, rows: ArrowRows) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of batches whose checksums were compared; a piece is opened when its turn comes."""
    wanted = WantedRecords(Range(group.from_offset, group.to_offset - 1), ALL, group.aborted)
    for data, position in group.batches.pieces:
        yield from rows_of_pieces((data,), wanted, rows, name=group.batches.name, position=position, check_crc=False)


def _next_packed(found: Iterator[pa.RecordBatch], packer: "BatchPacker") -> list[pa.RecordBatch]:
    """Decode until a batch is complete; none at the end. A few kilobytes may unpack to any number of batches."""
    for batch in found:
        if packed := packer.add(batch):
            return packed
    return []


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
