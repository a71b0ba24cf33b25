"""Where the data of a broker's segment end: a live one may have unused room behind them (log-format 6.3).

With ``preallocate=true`` a broker makes the file of a new segment as long as ``segment.bytes`` and writes into it from
the front. It cuts the room off when it rolls or stops, so only the active segment has it, and after a crash the last::

    [ batch | batch | ... | batch | 0 0 0 ... 0 ]
                                  ^ the end of the data
"""

import errno
import os

from tierd.errors import CorruptRecordError, TierError
from tierd.log.files.partition_scan import MAX_OFFSET, SegmentFiles
from tierd.log.files.source import Source, open_source
from tierd.log.records.batch_header import OVERHEAD_BYTES, crc_matches, iter_headers
from tierd.log.segments.segment_reader import indexed_position

_FIRST_LOOK_BYTES = 4 << 10
_STEP_BYTES = 1 << 20


def readable_bytes(source: Source, segment: SegmentFiles) -> int:
    """Return how many bytes of an open segment count: of a rolled one all, of the active one its data. Blocking.

    Raises:
        SegmentChangedError: the file became shorter.
        LogDirOfflineError: it cannot be read.
    """
    if segment.next_base_offset is not None:
        return source.size_bytes
    used = used_bytes(source)
    if used in {0, source.size_bytes}:
        return used
    return data_end(source, used, position=indexed_position(open_source, source, segment, MAX_OFFSET))


def data_end(source: Source, used: int, *, position: int = 0) -> int:
    """Return the position behind the last whole batch of a file that ends with zeros; its size if it does not.

    A batch that is still being written, its last bytes yet zero and its checksum wrong, is not whole. Damage before the
    zeros is left to the reader that meets it: the answer is then the size of the file. Blocking.

    Args:
        source: the open log file; what is appended after it was opened does not count.
        used: its ``used_bytes``.
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
        # A header of which some bytes are written is followed by zeros only.
        return error.position if used < error.position + OVERHEAD_BYTES else source.size_bytes
    if last is None or last.end_position < used:
        return source.size_bytes
    return last.end_position if last.end_position == used or crc_matches(source, last) else last.position


def data_bytes(segment: SegmentFiles) -> int:
    """Return how many bytes of data a segment's log file has; 0 for one that is gone or cannot be read. Blocking."""
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
    end, step = source.size_bytes, _FIRST_LOOK_BYTES
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
    """Return where the last hole of a file begins that reaches to its end: a hole reads as zeros, without the disk."""
    end = 0
    try:
        while end < source.size_bytes:
            end = os.lseek(source.fd, os.lseek(source.fd, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:  # behind ``end`` is no more data, or the file system knows no holes
        return end if error.errno == errno.ENXIO else source.size_bytes
    return source.size_bytes
