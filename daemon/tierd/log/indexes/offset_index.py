"""OffsetIndex: offset to position, sparse; a hint that readers verify (log-format 3.1)."""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import NamedTuple, Self

from tierd.errors import CorruptIndexError
from tierd.log.records.log_config import MAX_INT

ENTRY = struct.Struct(">ii")  # relativeOffset, position
ENTRY_BYTES = ENTRY.size
_POSITION_MASK = 0xFFFFFFFF


class OffsetPosition(NamedTuple):
    """Position at which a set of batches begins, with the last offset of that set."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """The entries of an ``.index`` file, strictly increasing in offset and position.

    ::

        relativeOffset i32 | position i32        (an entry is one 64-bit number, and numbers sort as offsets do)
    """

    base_offset: int
    _entries: "array[int]"

    @classmethod
    def from_bytes(cls, data: bytes, base_offset: int, name: str) -> Self:
        """Parse a whole file. Zeros at the end are the unused room of an active segment's index.

        Raises:
            CorruptIndexError: a partial entry, or entries that do not increase.
        """
        if len(data) % ENTRY_BYTES:
            raise _corrupt(name, f"{len(data)} bytes are no whole number of entries")
        used = len(data.rstrip(b"\0"))
        entries = array("Q", data[: used + -used % ENTRY_BYTES])
        if sys.byteorder == "little":
            entries.byteswap()
        for kind, values in (
            ("offsets", array("L", (entry >> 32 for entry in entries))),
            ("positions", array("L", (entry & _POSITION_MASK for entry in entries))),
        ):
            if not all(map(lt, values, islice(values, 1, None))) or (values and values[-1] > MAX_INT):
                raise _corrupt(name, f"{kind} do not increase, or are negative")
        return cls(base_offset, entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole entries; the rest of the file is unused room, or a torn entry."""
        return len(self) * ENTRY_BYTES

    def __getitem__(self, index: int) -> OffsetPosition:
        return self._entry(self._entries[index])

    def entries(self) -> Iterator[OffsetPosition]:
        """Return every entry, ascending."""
        return map(self._entry, self._entries)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the largest entry at or below ``offset``; (base offset, 0) without such an entry."""
        key = (offset - self.base_offset + 1 << 32) - 1
        index = bisect_right(self._entries, key)
        return self._entry(self._entries[index - 1]) if index else OffsetPosition(self.base_offset, 0)

    def upper_bound(self, position: int, size: int) -> OffsetPosition | None:
        """Return the first entry at or behind ``position + size``, whose offset is above the read; None if unknown."""
        index = bisect_right(self._entries, position + size - 1, key=lambda entry: entry & _POSITION_MASK)
        return self._entry(self._entries[index]) if index < len(self._entries) else None

    def _entry(self, entry: int) -> OffsetPosition:
        return OffsetPosition(self.base_offset + (entry >> 32), entry & _POSITION_MASK)


def _corrupt(name: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(f"{name}: {problem}", remedy=f"run tierd inspect {name}; it can be rebuilt from the log")
