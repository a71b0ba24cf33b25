"""Checks of the content of a stored log: batch by batch, and against the committed part of the local log."""

from collections.abc import Sequence

import structlog

from tierd.errors import LogError
from tierd.kernels import crc32c
from tierd.log import RecordBatch, compare_with_local, iter_batches
from tierd.model import RemoteLogSegmentMetadata, TimestampRange
from tierd.remote import SegmentManifest
from tierd.tiering.reading.tiered_log import TieredLog

log = structlog.get_logger()


class BatchWalk:
    """Walk over every batch of a log that arrives in chunks.

    Attributes:
        wrong_times: the latest batch whose timestamp the manifest contradicts, in a sentence; None while there is none.
        taken: the batches that the latest chunk completed.
    """

    def __init__(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._metadata = metadata
        self._tail = b""
        self._next_offset = metadata.start_offset
        self._batches = 0
        self.wrong_times: str | None = None
        self.taken: list[RecordBatch] = []

    def take(self, content: bytes, crc: int, start: int, timestamps: TimestampRange | None = None) -> str | None:
        """Check one chunk and the batches that it completes; return the problem, None without one. Blocking.

        Args:
            content: the bytes of the chunk.
            crc: its CRC-32C as the manifest has it.
            start: its position in the log.
            timestamps: the range of the records' timestamps, as the manifest has it.
        """
        if crc32c(content) != crc:
            return f"the chunk at byte {start} does not have the checksum in the manifest"
        data = self._tail + content
        position = start - len(self._tail)
        used = 0
        self.taken = []
        try:
            for batch in iter_batches(data, name=str(self._metadata.segment), position=position):
                if batch.base_offset < self._next_offset and batch.magic >= 2:
                    return f"the batch at byte {batch.position} begins at offset {batch.base_offset} again"
                if batch.last_offset > self._metadata.end_offset:
                    return f"the batch at byte {batch.position} ends at offset {batch.last_offset}, beyond the segment"
                if timestamps and batch.record_count and not _is_within(batch.max_timestamp_ms, timestamps):
                    self.wrong_times = (
                        f"the batch at byte {batch.position} has timestamp {batch.max_timestamp_ms}, the manifest says "
                        f"{timestamps.min_ms} to {timestamps.max_ms} of its chunk"
                    )
                self._next_offset = batch.last_offset + 1
                self._batches += 1
                self.taken.append(batch)
                used += batch.size_bytes
        except LogError as error:
            return str(error)
        self._tail = data[used:]
        return None

    def end(self, manifest: SegmentManifest) -> str | None:
        """Return the problem of the whole log, None when there is none."""
        if self._tail:
            return f"{len(self._tail)} bytes at its end are no whole batch"
        if self._batches != manifest.batch_count:
            return f"{self._batches} batches, the manifest says {manifest.batch_count}"
        return None


def _is_within(timestamp_ms: int, timestamps: TimestampRange) -> bool:
    return timestamps.min_ms <= timestamp_ms <= timestamps.max_ms


class LocalHistory:
    """Comparison of one segment with the local log. Offsets that the local log does not have are not compared.

    Attributes:
        problem: the first difference, None while there is none.
    """

    def __init__(self, metadata: RemoteLogSegmentMetadata, tiered: TieredLog | None) -> None:
        """Compare ``metadata`` with the local log of ``tiered``; None where this host has none."""
        self.problem: str | None = None
        self._scan = None if tiered is None else tiered.scan
        own_end = 0 if tiered is None else tiered.readable_end(metadata, metadata.first_readable_offset)
        committed = 0 if tiered is None else tiered.high_watermark or 0
        # What a replica has above its high watermark may still be truncated; another branch is no difference.
        self._end = min(own_end, committed)

    def take(self, batches: Sequence[RecordBatch]) -> None:
        """Compare the next batches. Blocking; a local log that cannot be read is left to ``tierd inspect``."""
        own = [batch for batch in batches if batch.last_offset < self._end]
        if self._scan is None or self.problem is not None or not own:
            return
        if not self._scan.segments or own[-1].last_offset < self._scan.segments[0].base_offset:
            return
        try:
            found = compare_with_local(self._scan, own)
        except LogError as error:
            log.warning("log_not_compared", directory=str(self._scan.directory.path), problem=str(error))
            return
        if found.differs_at is not None:
            self.problem = f"the local log has another record at offset {found.differs_at}: it lost this one"
