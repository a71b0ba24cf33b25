"""The end of the data in a broker's segment: a live segment may have unused room behind its data (log-format 6.3).

With ``preallocate=true`` a broker makes the file of a new segment as long as ``segment.bytes`` and writes into the file
from the front. The broker cuts the unused room off when it rolls or stops. So only the active segment has unused room,
and after a crash the last segment::

    [ batch | batch | ... | batch | 0 0 0 ... 0 ]
                                  ^ the end of the data
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tierd.errors import CorruptRecordError, SegmentChangedError, TierError
from tierd.log.files.partition_scan import MAX_OFFSET, SegmentFiles
from tierd.log.files.source import Source, open_source
from tierd.log.records.batch_header import OVERHEAD_BYTES, BatchHeader, crc_matches, iter_headers
from tierd.log.segments.log_snapshot import OpenLog
from tierd.log.segments.segment_reading import indexed_position

_FIRST_STEP_BYTES = 4 << 10
_STEP_BYTES = 1 << 20


@contextmanager
def open_readable(segment: SegmentFiles) -> Iterator[OpenLog]:
    """Open the log file of a segment, with the end of the bytes that count. Blocking.

    Raises:
        SegmentChangedError: the file is not there, or became shorter.
        LogDirOfflineError: the file cannot be read.
    """
    with open_source(segment.log) as source:
        yield OpenLog(source, readable_bytes(source, segment))


def readable_bytes(source: Source, segment: SegmentFiles) -> int:
    """Return the number of bytes that count: all bytes of a rolled segment, the data of the active segment. Blocking.

    The broker may roll the active segment meanwhile and cut the unused room off.

    Raises:
        SegmentChangedError: the file became shorter again and again.
        LogDirOfflineError: the file cannot be read.
    """
    if segment.next_base_offset is not None:
        return source.size_bytes
    try:
        return _active_bytes(source, segment)
    except SegmentChangedError:
        return _active_bytes(replace(source, size_bytes=min(source.size_bytes, os.fstat(source.fd).st_size)), segment)


def _active_bytes(source: Source, segment: SegmentFiles) -> int:
    used = used_bytes(source)
    if used in {0, source.size_bytes}:
        return used
    return data_end(source, used, position=indexed_position(open_source, source, segment, MAX_OFFSET))


def live_headers(source: Source, segment: SegmentFiles, *, position: int) -> Iterator[BatchHeader]:
    """Yield the headers of a segment from the batch at ``position`` on, up to unused room or a torn batch. Blocking.

    A rolled segment ends with a complete batch: there an incomplete batch is damage. The batches behind the high
    watermark are among the headers, and the broker may be writing the last one.

    Raises:
        CorruptRecordError: a header is impossible.
        SegmentChangedError: the file became shorter.
        LogDirOfflineError: the file cannot be read.
    """
    is_active = segment.next_base_offset is None
    try:
        yield from iter_headers(source, position=position, may_be_torn=is_active)
    except CorruptRecordError as error:
        if not is_active or any(source.read(error.position, OVERHEAD_BYTES)):
            raise


def data_end(source: Source, used: int, *, position: int = 0) -> int:
    """Return the position behind the last complete batch of a file that ends with zeros; else the size of the file.

    A batch that the broker is still writing is not complete: its last bytes are zero and its checksum is wrong. With
    damage before the zeros the answer is the size of the file, so that the reader meets the damage. Blocking.

    Args:
        source: the open log file; bytes that are appended after the file was opened do not count.
        used: the ``used_bytes`` of the file.
        position: of a batch to begin at, which shortens the walk.

    Raises:
        SegmentChangedError: the file became shorter.
        LogDirOfflineError: it cannot be read.
    """
    if used in {0, source.size_bytes}:
        return used
    last = None
    try:
        for header in iter_headers(source, position=position):
            last = header
            if header.end_position >= used:
                break
    except CorruptRecordError as error:
        # Only zeros follow a header that the broker is still writing.
        return error.position if used < error.position + OVERHEAD_BYTES else source.size_bytes
    if last is None or last.end_position < used:
        return source.size_bytes
    return last.end_position if last.end_position == used or crc_matches(source, last) else last.position


def data_bytes(segment: SegmentFiles) -> int:
    """Return the size of the data in a log file; 0 for a file that is gone or cannot be read. Blocking."""
    try:
        if segment.next_base_offset is not None:
            return segment.log.stat().st_size
        with open_source(segment.log) as source:
            return readable_bytes(source, segment)
    except (TierError, OSError):
        return 0


def used_bytes(source: Source) -> int:
    """Return the position behind the last byte of a file that is not zero. Blocking.

    Raises:
        SegmentChangedError: the file became shorter.
        LogDirOfflineError: it cannot be read.
    """
    end, step = source.size_bytes, _FIRST_STEP_BYTES
    while end:
        start = max(0, end - step)
        piece = source.read(start, end - start)
        if len(piece) < end - start:
            raise source.changed()
        if used := len(piece.rstrip(b"\0")):
            return start + used
        end = start if step == _STEP_BYTES else min(start, _end_of_extents(source))
        step = _STEP_BYTES
    return 0


def _end_of_extents(source: Source) -> int:
    """Return the start of the hole at the end of a file. A hole reads as zeros without access to the disk."""
    end = 0
    try:
        while end < source.size_bytes:
            end = os.lseek(source.fd, os.lseek(source.fd, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:  # ENXIO: no data behind ``end``; another error: the file system knows no holes
        return end if error.errno == errno.ENXIO else source.size_bytes
    return source.size_bytes
