"""Search for a sound batch behind a damaged place, which distinguishes a hole in the middle from a torn tail."""

import re
from collections.abc import Iterator

from tierd.errors import CorruptRecordError
from tierd.log.files.disk import Readable
from tierd.log.records.batch_header import OVERHEAD_BYTES, BatchHeader, crc_matches, parse_header
from tierd.log.records.log_config import MAX_INT

_WINDOW_BYTES = 1 << 20
_HEADERS_PER_BYTE_OF_FILE = 2
_MAGIC_AT = 16  # in a batch


def find_sound_batch(source: Readable, *, position: int, expected_offset: int) -> int | None:
    """Return the position of a magic 2 batch from ``position`` on with the right checksum, or None.

    Every byte is tried, because behind damage the start of a batch is unknown. The work is bounded: bytes that look
    like a batch again and again count as one. Blocking.

    Args:
        source: the segment.
        position: from here on, inclusive.
        expected_offset: the smallest offset that a batch there may have.
    """
    budget = _HEADERS_PER_BYTE_OF_FILE * source.size_bytes + _WINDOW_BYTES
    for header in _candidates(source, position, expected_offset):
        budget -= header.size_bytes
        if budget < 0 or crc_matches(source, header):
            return header.position
    return None


def _candidates(source: Readable, position: int, expected_offset: int) -> Iterator[BatchHeader]:
    upper = {offset >> 32 for offset in (expected_offset, expected_offset + MAX_INT)}
    starts = b"|".join(re.escape(high.to_bytes(4, "big")) for high in upper)
    # Begins with the one byte, which a preallocated file's zeros are searched for a hundred times as fast.
    pattern = re.compile(rb"\x02(?<=(?:" + starts + rb").{%d}\x02)" % (_MAGIC_AT - 4), re.DOTALL)
    end = source.size_bytes
    for start in range(position, end, _WINDOW_BYTES):
        data = source.read(start, _WINDOW_BYTES + OVERHEAD_BYTES)
        for match in pattern.finditer(data):
            at = match.start() - _MAGIC_AT
            if at >= _WINDOW_BYTES:
                break
            header = _parse(source, data, at, start + at)
            if (
                header is not None
                and header.end_position <= end
                and expected_offset <= header.base_offset <= header.last_offset <= expected_offset + MAX_INT
            ):
                yield header


def _parse(source: Readable, data: bytes, at: int, position: int) -> BatchHeader | None:
    try:
        return parse_header(data, at, name=str(source.path), position=position)
    except CorruptRecordError:
        return None
