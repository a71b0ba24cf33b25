"""OutputLog: writes the segment that a group becomes, with its indexes, checksums and counts."""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from tierd.errors import OffsetOverflowError
from tierd.kernels import crc32c
from tierd.log import IndexBuilder
from tierd.model import CHECKSUM_BLOCK_BYTES, BlockChecksums, BlockTimestamps, TimestampRange
from tierd.pipeline.rewriting.new_batch import NewBatch
from tierd.pipeline.rewriting.plain_batches import NewBatches

INDEX_INTERVAL_BYTES: Final = 4096  # Kafka's default; remote indexes are read whole, so no topic's setting matters
_MAX_INT: Final = (1 << 31) - 1


class OutputLog:
    """Output file of a group, as a context manager; an error removes the file.

    Attributes:
        size_bytes: bytes so far.
        batch_count: batches so far.
        record_count: records so far.
        max_timestamp_ms: largest timestamp of the headers; -1 without any.
    """

    def __init__(self, path: Path, *, base_offset: int) -> None:
        """Create the file, or empty it.

        Args:
            path: of the log; nothing is synced.
            base_offset: of the segment.

        Raises:
            OSError: the file cannot be made.
        """
        self.size_bytes = 0
        self.batch_count = 0
        self.record_count = 0
        self.max_timestamp_ms = -1
        self._path = path
        self._base_offset = base_offset
        self._shallow_offset = base_offset  # of the earliest batch with the largest timestamp, the last one
        self._indexes = IndexBuilder(base_offset, interval_bytes=INDEX_INTERVAL_BYTES)
        self._block = bytearray(CHECKSUM_BLOCK_BYTES)
        self._filled = 0
        self._timestamps = BlockTimestamps()
        self._checksums: list[int] = []
        self._file = path.open("wb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is not None:
            self._path.unlink(missing_ok=True)

    def append(self, batch: NewBatch) -> None:
        """Append a batch.

        Raises:
            OffsetOverflowError: no index can express the offset or position of the batch.
            OSError: the batch cannot be written.
        """
        self._add(len(batch.data), batch.last_offset, batch.max_timestamp_ms)
        if batch.record_count:
            self._timestamps.add(len(batch.data), batch.timestamps)
        else:
            self._timestamps.pass_over(len(batch.data))
        self.record_count += batch.record_count
        self._write(memoryview(batch.data))

    def append_all(self, batches: NewBatches) -> None:
        """Append batches.

        Raises:
            OffsetOverflowError: as ``append``.
            OSError: as ``append``.
        """
        begin, ends = self.size_bytes, np.array(batches.ends)
        sizes = np.diff(ends, prepend=0)
        offsets, stamps = batches.last_offsets.tolist(), batches.max_timestamps_ms.tolist()
        for size_bytes, last_offset, max_timestamp_ms in zip(sizes.tolist(), offsets, stamps, strict=True):
            self._add(size_bytes, last_offset, max_timestamp_ms)
        self._add_timestamps(begin + ends - sizes, sizes, batches.earliest_ms, batches.latest_ms)
        self.record_count += int(batches.record_counts.sum())
        self._write(batches.data)

    def _add(self, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Count and index the next batch."""
        position = self.size_bytes
        if last_offset - self._base_offset > _MAX_INT or position + size_bytes > _MAX_INT:
            raise OffsetOverflowError(
                f"{self._path}: offset {last_offset} at position {position} does not fit a segment that begins at "
                f"{self._base_offset}",
                remedy="make groups of fewer segments",
            )
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self._shallow_offset = max_timestamp_ms, last_offset
        if position > self._indexes.next_position:
            self._indexes.add(last_offset, position, self.max_timestamp_ms, self._shallow_offset)
        self.batch_count += 1
        self.size_bytes += size_bytes

    def _add_timestamps(
        self, positions: np.ndarray, sizes: np.ndarray, earliest_ms: np.ndarray, latest_ms: np.ndarray
    ) -> None:
        """Add the timestamps of batches; batches that overlap the same blocks are added together."""
        blocks = positions // CHECKSUM_BLOCK_BYTES, (positions + sizes - 1) // CHECKSUM_BLOCK_BYTES
        heads = np.flatnonzero(np.any(np.diff(blocks, prepend=-1), axis=0))
        together = (
            np.add.reduceat(sizes, heads),
            np.minimum.reduceat(earliest_ms, heads),
            np.maximum.reduceat(latest_ms, heads),
        )
        for size_bytes, earliest, latest in zip(*(column.tolist() for column in together), strict=True):
            self._timestamps.add(size_bytes, TimestampRange(earliest, latest))

    def finish(self) -> BlockChecksums:
        """Write the rest, end the indexes, and return the checksums of the whole log.

        Raises:
            OSError: the rest cannot be written.
        """
        if self._filled:
            self._end_block()
        self._indexes.finish(self.max_timestamp_ms, self._shallow_offset)
        return BlockChecksums(self.size_bytes, tuple(self._checksums))

    @property
    def offset_index(self) -> bytes:
        """Return the offset index, which is complete after ``finish``."""
        return bytes(self._indexes.offsets)

    @property
    def time_index(self) -> bytes:
        """Return the time index, which is complete after ``finish``."""
        return bytes(self._indexes.times)

    @property
    def chunk_timestamps(self) -> tuple[TimestampRange | None, ...]:
        """Return the timestamps of the records in each block of checksums, as ``LogSegmentData`` has them."""
        return self._timestamps.ranges()

    def _write(self, data: memoryview) -> None:
        while data:
            piece = data[: CHECKSUM_BLOCK_BYTES - self._filled]
            self._block[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            data = data[len(piece) :]
            if self._filled == CHECKSUM_BLOCK_BYTES:
                self._end_block()

    def _end_block(self) -> None:
        rest = memoryview(self._block)[: self._filled]
        self._checksums.append(crc32c(rest))
        while rest:
            rest = rest[self._file.write(rest) :]  # a full disk may take a part first
        self._filled = 0
