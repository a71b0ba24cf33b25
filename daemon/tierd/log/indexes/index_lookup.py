"""Lookups in an index file that is open but not loaded, with any content (log-format 3.1).

The file may be wrong: the caller verifies that a batch begins at the answer. The unused room in the index of an active
segment is zeros. Without a ``count`` of entries, an entry of zeros counts as larger than every key.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from tierd.log.files.disk import Readable
from tierd.log.indexes import offset_index, time_index
from tierd.log.indexes.offset_index import OffsetPosition
from tierd.model import TimestampOffset

_OFFSET_ENTRY = struct.Struct(">iI")
_BEYOND = 1 << 64


class _Entries:
    """The keys of an index file as a sequence, read one at a time."""

    def __init__(self, source: Readable, entry_bytes: int, key: Callable[[bytes], int], count: int | None) -> None:
        self._source = source
        self._count = source.size_bytes // entry_bytes if count is None else count
        # The entry of timestamp 0 at the base offset is zeros, too. A trimmed index may hold it as its only entry.
        self._has_room = count is None and self._count > 1
        self._entry_bytes = entry_bytes
        self._key = key

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        entry = self.raw(index)
        return _BEYOND if self._has_room and not any(entry) else self._key(entry)

    def raw(self, index: int) -> bytes:
        """Return the bytes of an entry."""
        entry = self._source.read(index * self._entry_bytes, self._entry_bytes)
        if len(entry) < self._entry_bytes:
            raise self._source.changed()
        return entry


def lookup_offset(source: Readable, *, base_offset: int, offset: int, count: int | None = None) -> OffsetPosition:
    """Return the largest entry at or below ``offset``, as ``OffsetIndex.lookup`` does. Blocking.

    Raises:
        SegmentChangedError: the file became shorter.
    """
    entries = _Entries(source, offset_index.ENTRY_BYTES, lambda entry: _OFFSET_ENTRY.unpack(entry)[0], count)
    index = bisect_right(entries, offset - base_offset)
    return _offset_entry(entries, index - 1, base_offset) if index else OffsetPosition(base_offset, 0)


def lookup_upper_bound(
    source: Readable, *, base_offset: int, position: int, size_bytes: int, count: int | None = None
) -> OffsetPosition | None:
    """Return the first entry at or behind ``position + size_bytes``, as ``OffsetIndex.upper_bound`` does. Blocking.

    Raises:
        SegmentChangedError: the file became shorter.
    """
    entries = _Entries(source, offset_index.ENTRY_BYTES, lambda entry: _OFFSET_ENTRY.unpack(entry)[1], count)
    index = bisect_left(entries, position + size_bytes)
    if index == len(entries) or entries[index] == _BEYOND:
        return None
    return _offset_entry(entries, index, base_offset)


def lookup_position(
    source: Readable, *, base_offset: int, position: int, count: int | None = None
) -> OffsetPosition | None:
    """Return the last entry at or before byte ``position`` of the log; None without one. Blocking.

    Raises:
        SegmentChangedError: the file became shorter.
    """
    entries = _Entries(source, offset_index.ENTRY_BYTES, lambda entry: _OFFSET_ENTRY.unpack(entry)[1], count)
    index = bisect_right(entries, position)
    return _offset_entry(entries, index - 1, base_offset) if index else None


def lookup_timestamp(
    source: Readable, *, base_offset: int, timestamp_ms: int, count: int | None = None
) -> TimestampOffset:
    """Return the largest entry at or below ``timestamp_ms``, as ``TimeIndex.lookup`` does. Blocking.

    Raises:
        SegmentChangedError: the file became shorter.
    """
    entries = _Entries(source, time_index.ENTRY.size, lambda entry: time_index.ENTRY.unpack(entry)[0], count)
    index = bisect_right(entries, timestamp_ms)
    if not index:
        return TimestampOffset(-1, base_offset)
    found_ms, relative = time_index.ENTRY.unpack(entries.raw(index - 1))
    return TimestampOffset(found_ms, base_offset + relative)


def _offset_entry(entries: _Entries, index: int, base_offset: int) -> OffsetPosition:
    relative, position = _OFFSET_ENTRY.unpack(entries.raw(index))
    return OffsetPosition(base_offset + relative, position)
