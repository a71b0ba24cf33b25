"""TransactionIndex: the aborted transactions whose markers are in a segment (log-format 3.2)."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tierd.errors import CorruptIndexError, SegmentChangedError
from tierd.log.files.partition_scan import MAX_OFFSET
from tierd.log.files.source import read_whole

ENTRY = struct.Struct(">hqqqq")
_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One aborted transaction.

    Attributes:
        first_offset: offset of the first record; may lie in an earlier segment.
        last_offset: offset of the ABORT marker, inclusive.
        last_stable_offset: last stable offset of the log when the marker was written, exclusive.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class TransactionIndex:
    """The entries of a ``.txnindex`` file, in the order of their markers.

    ::

        version i16 = 0 | producerId i64 | firstOffset i64 | lastOffset i64 | lastStableOffset i64        (34 bytes)
    """

    entries: tuple[AbortedTransaction, ...] = ()

    @classmethod
    def from_bytes(cls, data: bytes, base_offset: int, name: str) -> Self:
        """Parse a whole file. A partial entry at the end is being written, and is left out.

        Raises:
            CorruptIndexError: an unknown version, an impossible entry, or an entry whose marker is not in the segment.
        """
        entries: list[AbortedTransaction] = []
        for at in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
            version, *fields = ENTRY.unpack_from(data, at)
            if version != 0:
                raise _corrupt(name, f"version {version} at position {at} is not known, only 0")
            entry = AbortedTransaction(*fields)
            previous = entries[-1].last_offset if entries else base_offset - 1
            if not (
                entry.first_offset >= 0 and entry.last_offset > previous and entry.first_offset <= entry.last_offset
            ):
                raise _corrupt(
                    name, f"offsets {entry.first_offset} to {entry.last_offset} at position {at} are impossible"
                )
            entries.append(entry)
        return cls(tuple(entries))

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole entries; the rest of the file is unused room, or a torn entry."""
        return len(self) * ENTRY.size

    def to_bytes(self) -> bytes:
        """Return the bytes of the whole file."""
        return b"".join(map(encode_entry, self.entries))

    def collect(
        self, from_offset: int, upper_offset: int, *, end_offset: int = MAX_OFFSET
    ) -> tuple[tuple[AbortedTransaction, ...], bool]:
        """Return the transactions that a read of ``[from_offset, upper_offset)`` has to know.

        ``end_offset``: exclusive end of what the segment has of the reader's branch of the log. A marker at or behind
        it belongs to another branch and decides nothing of this one.

        Returns:
            Them, and whether that is all: otherwise the next segment's index may hold more.
        """
        found: list[AbortedTransaction] = []
        for entry in self.entries:
            if entry.last_offset >= end_offset:
                break
            if entry.last_offset >= from_offset and entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return tuple(found), True
        return tuple(found), False


def read_transaction_index(path: Path, *, base_offset: int) -> TransactionIndex:
    """Read a ``.txnindex``; empty when there is no such file, which is normal. Blocking.

    Raises:
        CorruptIndexError: it cannot be understood.
        LogDirOfflineError: it cannot be read.
    """
    try:
        data = read_whole(path, limit_bytes=_LIMIT_BYTES, error=CorruptIndexError)
    except SegmentChangedError:
        return TransactionIndex()
    return TransactionIndex.from_bytes(data, base_offset, str(path))


def encode_entry(entry: AbortedTransaction) -> bytes:
    """Return the bytes of the entry in the file."""
    return ENTRY.pack(0, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)


def _corrupt(name: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(f"{name}: {problem}", remedy=f"run tierd inspect {name}; a replica may have it intact")
