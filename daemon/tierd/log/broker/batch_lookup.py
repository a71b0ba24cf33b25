"""Lookup of the batch that holds an offset, in a segment that a broker owns."""

from tierd.log.files.partition_scan import SegmentFiles
from tierd.log.files.source import open_source
from tierd.log.records.batch_header import BatchHeader
from tierd.log.segments.segment_reading import find_batch


def batch_at(segment: SegmentFiles, offset: int) -> BatchHeader | None:
    """Return the first batch of ``segment`` that holds ``offset`` or follows it; None when there is none. Blocking.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: a file vanished or became shorter.
        LogDirOfflineError: a file cannot be read.
    """
    with open_source(segment.log) as source:
        return find_batch(open_source, source, segment, offset, end=source.size_bytes)
