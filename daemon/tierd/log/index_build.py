"""Offset and time index rebuilt from the batches of a segment (log-format 6.4, step 3)."""

import struct
from pathlib import Path

from tierd.errors import CorruptRecordError
from tierd.log import time_index
from tierd.log.batch_header import iter_headers
from tierd.log.files import open_source

_MAX_INT = (1 << 31) - 1
_OFFSET_ENTRY = struct.Struct(">ii")


def build_indexes(path: Path, *, base_offset: int, index_interval_bytes: int = 4096) -> tuple[bytes, bytes]:
    """Return the offset and the time index that a broker's recovery would write for a rolled segment. Blocking.

    They may differ from the originals, which were made per append; both are valid. CRCs are not checked here.

    Args:
        path: the log file, under whatever name it is held.
        base_offset: the one in its own name.
        index_interval_bytes: the topic's setting, if known.

    Raises:
        CorruptRecordError: an impossible or incomplete batch, or an offset that no index can express.
        SegmentChangedError: the file vanished, or changed while it was read.
        LogDirOfflineError: it cannot be read.
    """
    offsets, times = bytearray(), bytearray()
    max_timestamp_ms, shallow_offset = -1, base_offset
    indexed_position, indexed_timestamp_ms = 0, -1
    with open_source(path) as source:
        for header in iter_headers(source, may_be_torn=False):
            relative = header.last_offset - base_offset
            if not 0 <= relative <= _MAX_INT or header.position > _MAX_INT:
                raise CorruptRecordError(path, header.position, f"offset {header.last_offset} fits no index")
            if header.max_timestamp_ms > max_timestamp_ms:
                max_timestamp_ms, shallow_offset = header.max_timestamp_ms, header.last_offset
            if header.position - indexed_position > index_interval_bytes:
                offsets += _OFFSET_ENTRY.pack(relative, header.position)
                indexed_position = header.position
                if max_timestamp_ms > indexed_timestamp_ms:
                    times += time_index.ENTRY.pack(max_timestamp_ms, shallow_offset - base_offset)
                    indexed_timestamp_ms = max_timestamp_ms
        source.require_unchanged()
    if max_timestamp_ms > indexed_timestamp_ms:
        times += time_index.ENTRY.pack(max_timestamp_ms, shallow_offset - base_offset)
    return bytes(offsets), bytes(times)
