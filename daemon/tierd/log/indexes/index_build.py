"""Offset and time index rebuilt from the batches of a segment (log-format 6.4, step 3)."""

from pathlib import Path

from tierd.errors import CorruptRecordError
from tierd.log.files.source import open_source
from tierd.log.indexes import offset_index, time_index
from tierd.log.records.batch_header import iter_headers
from tierd.log.records.log_config import MAX_INT


class IndexBuilder:
    """The entries that recovery writes for a segment, as bytes of the two files (Kafka: LogSegment.recover).

    A batch gets an entry when it begins more than the interval behind the batch of the entry before: its last offset
    with its position, and the largest timestamp so far. The caller calls ``add`` for such batches alone.

    Attributes:
        next_position: the next batch that begins behind this position gets an entry.
    """

    def __init__(self, base_offset: int, *, interval_bytes: int, max_bytes: int = MAX_INT) -> None:
        """Begin without entries.

        Args:
            base_offset: of the segment.
            interval_bytes: ``index.interval.bytes``.
            max_bytes: ``segment.index.bytes``; a full index takes no more.
        """
        self.offsets, self.times = bytearray(), bytearray()
        self.next_position = interval_bytes
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._max_offsets_bytes = max_bytes - offset_index.ENTRY.size
        self._max_times_bytes = max_bytes - 2 * time_index.ENTRY.size
        self._timestamp_ms = -1

    def add(self, last_offset: int, position: int, max_timestamp_ms: int, shallow_offset: int) -> None:
        """Index a batch whose offsets are within reach of the base.

        Args:
            last_offset: of the batch.
            position: of the batch.
            max_timestamp_ms: the largest so far, this batch included.
            shallow_offset: the last one of the earliest batch with that timestamp.
        """
        self.next_position = position + self._interval_bytes
        if len(self.offsets) > self._max_offsets_bytes or len(self.times) > self._max_times_bytes:
            return
        self.offsets += offset_index.ENTRY.pack(last_offset - self._base_offset, position)
        self.finish(max_timestamp_ms, shallow_offset)

    def finish(self, max_timestamp_ms: int, shallow_offset: int) -> None:
        """Add the last time entry of a rolled segment, if its timestamp is new."""
        if max_timestamp_ms > self._timestamp_ms:
            self.times += time_index.ENTRY.pack(max_timestamp_ms, shallow_offset - self._base_offset)
            self._timestamp_ms = max_timestamp_ms


def build_indexes(path: Path, *, base_offset: int, index_interval_bytes: int = 4096) -> tuple[bytes, bytes]:
    """Return the offset and the time index that a broker's recovery would write for a rolled segment. Blocking.

    They may differ from the originals, which were made per append; both are valid. CRCs are not checked here.

    Args:
        path: the log file, under any name.
        base_offset: the one in its own name.
        index_interval_bytes: the topic's setting, if known.

    Raises:
        CorruptRecordError: an impossible or incomplete batch, or an offset that no index can express.
        SegmentChangedError: the file vanished, or changed while it was read.
        LogDirOfflineError: it cannot be read.
    """
    indexes = IndexBuilder(base_offset, interval_bytes=index_interval_bytes)
    max_timestamp_ms, shallow_offset = -1, base_offset
    with open_source(path) as source:
        for header in iter_headers(source, may_be_torn=False):
            if not 0 <= header.last_offset - base_offset <= MAX_INT or header.position > MAX_INT:
                raise CorruptRecordError(path, header.position, f"offset {header.last_offset} fits no index")
            if header.max_timestamp_ms > max_timestamp_ms:
                max_timestamp_ms, shallow_offset = header.max_timestamp_ms, header.last_offset
            if header.position > indexes.next_position:
                indexes.add(header.last_offset, header.position, max_timestamp_ms, shallow_offset)
        source.require_unchanged()
    indexes.finish(max_timestamp_ms, shallow_offset)
    return bytes(indexes.offsets), bytes(indexes.times)
