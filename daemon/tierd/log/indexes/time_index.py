"""The time index of a segment: timestamp to offset, sparse (log-format 3.1)."""

import struct
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from tierd.errors import CorruptIndexError
from tierd.model import TimestampOffset

ENTRY = struct.Struct(">qi")  # timestamp, relativeOffset


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """The entries of a ``.timeindex`` file: timestamps strictly increase, offsets do not decrease.

    ::

        timestamp i64 | relativeOffset i32        (12 bytes; the largest timestamp up to the offset, inclusive)
    """

    base_offset: int
    entries: tuple[TimestampOffset, ...]

    @classmethod
    def from_bytes(cls, data: bytes, base_offset: int, name: str) -> Self:
        """Parse a whole file. Zeros at the end are the unused room of the index of an active segment.

        A file of 12 zeros has no such room: it has the entry of timestamp 0 at the base offset alone.

        Raises:
            CorruptIndexError: the file ends within an entry, or the entries do not increase.
        """
        if len(data) % ENTRY.size:
            raise _corrupt(name, f"{len(data)} bytes are no whole number of entries")
        used = len(data.rstrip(b"\0")) if len(data) > ENTRY.size else len(data)
        used += -used % ENTRY.size
        entries = tuple(TimestampOffset(t, base_offset + r) for t, r in ENTRY.iter_unpack(data[:used]))
        if any(
            after.timestamp_ms <= before.timestamp_ms or after.offset < before.offset
            for before, after in pairwise(entries)
        ):
            raise _corrupt(name, "entries do not increase")
        if entries and entries[0].offset < base_offset:
            raise _corrupt(name, "an offset is below the segment's base")
        return cls(base_offset, entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def size_bytes(self) -> int:
        """Return the size of the entries in the file; the rest of the file is unused room or an incomplete entry."""
        return len(self) * ENTRY.size

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the largest entry at or below ``timestamp_ms``; (-1, base offset) without such an entry."""
        index = bisect_right(self.entries, timestamp_ms, key=lambda entry: entry.timestamp_ms)
        return self.entries[index - 1] if index else TimestampOffset(-1, self.base_offset)


def _corrupt(name: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(f"{name}: {problem}", remedy=f"run tierd inspect {name}; it can be rebuilt from the log")
