"""CleanedSegment: the segment that a group of others becomes, under ``.cleaned`` names until it takes their place."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from tierd.log.files.disk import Buffer, Disk, unlink_if_there
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.records.batch_header import parse_header
from tierd.log.records.log_config import LogConfig
from tierd.log.segments.leftovers import CLEANED
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.segment_replacement import segment_names

_WRITE_BYTES: Final = 1 << 20


class CleanedSegment:
    """The output of one group: batches one behind the other, with the three indexes.

    Attributes:
        segment: the files.
    """

    def __init__(self, disk: Disk, directory: Path, base_offset: int, *, config: LogConfig, now_ms: int) -> None:
        """Make the files; leftovers of an earlier round under the same names are removed first.

        Raises:
            OSError: the disk is full or failing.
        """
        for name in segment_names(base_offset, CLEANED):
            unlink_if_there(disk, directory / name)
        self._disk = disk
        self._buffered_bytes = 0
        self.segment = LogSegment(
            disk,
            directory,
            base_offset,
            config=replace(config, index_each_batch=True, preallocate=False),
            now_ms=now_ms,
            suffix=CLEANED,
            create=True,
        )

    @property
    def size_bytes(self) -> int:
        """Return the size of the cleaned log file so far."""
        return self.segment.size_bytes

    def append(self, data: Buffer) -> None:
        """Append one whole batch, which must not change until the segment is finished.

        Raises:
            OffsetOverflowError: its last offset is out of reach of the base.
            OSError: the disk is full or failing.
        """
        header = parse_header(memoryview(data), 0, name=str(self.segment.path), position=self.size_bytes)
        assert header is not None, "batches are whole"
        self.segment.append(
            [data],
            [header],
            largest_offset=header.last_offset,
            max_timestamp_ms=header.max_timestamp_ms,
            shallow_offset=header.last_offset,
        )
        self._buffered_bytes += len(data)
        if self._buffered_bytes >= _WRITE_BYTES:
            self.segment.write_out()
            self._buffered_bytes = 0

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Append to the transaction index, in the order of the markers.

        Raises:
            OSError: the disk is full or failing.
        """
        self.segment.transaction_index.append(transaction)

    def finish(self, *, mtime_ms: int) -> None:
        """Complete the files and make them durable; the log file gets ``mtime_ms``.

        Raises:
            OSError: the disk is full or failing.
        """
        self.segment.finish()
        self.segment.flush()
        self._disk.set_mtime_ms(self.segment.path, mtime_ms)

    def discard(self) -> None:
        """Remove the files."""
        self.segment.delete_files()
