"""IndexFile: base of the writable offset index and the writable time index (log-format 3.1)."""

import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from tierd.errors import CorruptIndexError, OffsetOverflowError
from tierd.log.files.disk import Disk, DiskFile, Readable
from tierd.log.files.held_file import HeldFile
from tierd.log.indexes.offset_index import OffsetPosition
from tierd.log.log_errors import LogClosedError
from tierd.log.records.log_config import MAX_INT
from tierd.model import TimestampOffset

EntryT = TypeVar("EntryT", OffsetPosition, TimestampOffset)


class IndexFile(HeldFile, ABC, Generic[EntryT]):
    """File with entries of one size and room for more. Entries are appended in memory and written in one piece.

    ::

        | entry 0 | ... | written | pending in memory | zeros: room up to max_bytes |

    An existing file counts as full: every slot of it has an entry. The first call that writes or flushes makes a
    missing file with its room. One writer. Any thread may call the lookups, which open the file separately and see the
    entries that were written out. Errors of the system are raised unchanged.

    Attributes:
        max_bytes: size of a new file with its room; a whole number of entries.
        entries: number of entries, pending ones included.
        max_entries: number of entries for which the file has room.
    """

    entry: ClassVar[struct.Struct]

    def __init__(self, disk: Disk, path: Path, *, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset
        self.max_bytes = max_bytes - max_bytes % self.entry.size
        self._exists = False
        self._is_loaded = False
        self._is_closed = False
        self._length_bytes = 0  # of the file, or of a file that is yet to be made
        self._max_entries = 0
        self._entries = 0
        self._written = 0  # invariant: _entries less those in _pending
        self._pending = bytearray()

    @abstractmethod
    def _note_last(self, raw: bytes | None) -> None:
        """Keep the last entry; ``raw`` has its bytes in the file, None without an entry."""

    @abstractmethod
    def _parse(self, raw: bytes) -> EntryT:
        """Return the entry with the bytes ``raw`` in the file."""

    @property
    def entries(self) -> int:
        """Return the number of entries."""
        if not self._is_loaded:
            self._load()
        return self._entries

    @property
    def max_entries(self) -> int:
        """Return the number of entries for which the file has room."""
        if not self._is_loaded:
            self._load()
        return self._max_entries

    def entry_at(self, number: int) -> EntryT:
        """Return entry ``number``, counted from 0.

        Raises:
            ValueError: there is no such entry.
        """
        return self._parse(self._raw(number))

    def materialise(self) -> None:
        """Make a missing file, with its room."""
        self._handle()

    def write_out(self) -> None:
        """Write the pending entries to the file."""
        if self._pending:
            self._handle().write(self._written * self.entry.size, [self._pending])
            self._pending = bytearray()
            self._written = self._entries

    def flush(self) -> None:
        """Make a missing file, and make every entry durable."""
        self._handle()
        self.write_out()
        self._handle().sync()

    def resize(self, size_bytes: int) -> bool:
        """Give the file room for ``size_bytes``, rounded down to whole entries; return True if the size changed.

        Raises:
            ValueError: the entries would not fit.
        """
        size_bytes -= size_bytes % self.entry.size
        if size_bytes < self.entries * self.entry.size:
            raise ValueError(f"{self.path}: {self._entries} entries do not fit into {size_bytes} bytes")
        if size_bytes == self._length_bytes and self._exists:
            return False
        file = self._handle()
        self.write_out()
        file.truncate(size_bytes)
        has_changed, self._length_bytes = size_bytes != self._length_bytes, size_bytes
        self._max_entries = size_bytes // self.entry.size
        return has_changed

    def grow(self) -> None:
        """Give the file the room of an active segment, or more if its entries need more."""
        self.resize(max(self.max_bytes, self.entries * self.entry.size))

    def trim(self) -> None:
        """Cut off the room that no entry uses."""
        self.resize(self.entries * self.entry.size)

    def truncate_to(self, offset: int) -> None:
        """Remove every entry at or behind ``offset``."""
        self._keep_first(bisect_right(range(self.entries), offset - 1, key=lambda number: self.entry_at(number).offset))

    def truncate(self) -> None:
        """Remove every entry; the room stays."""
        self._keep_first(0)

    def reset(self) -> None:
        """Remove every entry, and give the file the room of a new file."""
        self.truncate()
        self.resize(self.max_bytes)

    def fill(self, entries: bytes | bytearray) -> None:
        """Replace the content by ``entries`` without room for more, as the end of a rebuild does."""
        file = self._handle()
        self._pending.clear()
        self._written = self._entries = 0
        file.truncate(0)
        file.write(0, [entries])
        self._set_length(len(entries))
        self._written = self._entries = len(entries) // self.entry.size
        self._note_last(bytes(entries[-self.entry.size :]) if entries else None)

    def release_handle(self) -> None:
        """Close the file; the next call that writes opens it again."""
        if self._file:
            self.write_out()
        super().release_handle()

    def close(self) -> None:
        """Trim a file that was used, and refuse further calls."""
        if self._is_loaded and (self._exists or self._pending):
            self.trim()
        if self._file:  # otherwise a loss of power could bring the trimmed zeros back after a clean stop
            self._file.sync()
        self.close_handle()

    def close_handle(self) -> None:
        """Refuse further calls; the file stays as it is."""
        super().release_handle()
        self._is_loaded, self._is_closed = False, True

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_INT:
            raise OffsetOverflowError(
                f"{self.path}: offset {offset} is not within {MAX_INT} of the segment's base",
                remedy="split the segment, or roll before the append",
            )
        return relative

    def _raw(self, number: int) -> bytes:
        if not 0 <= number < self.entries:
            raise ValueError(f"{self.path}: entry {number} of {self._entries}")
        size = self.entry.size
        if number >= self._written:
            at = (number - self._written) * size
            return bytes(self._pending[at : at + size])
        with self._reading() as (source, _):
            return source.read(number * size, size) if source else b""

    @contextmanager
    def _reading(self) -> Iterator[tuple[Readable | None, int]]:
        """Open the file for a reader in any thread; yield file and number of entries, None and 0 without a file."""
        if self._is_closed:
            raise LogClosedError(f"{self.path}: closed")
        try:
            file = self._disk.open(self.path, write=False)
        except FileNotFoundError:
            yield None, 0
            return
        try:
            count = file.size_bytes // self.entry.size
            yield file, min(count, self._written) if self._is_loaded else count
        finally:
            file.close()

    def _keep_first(self, entries: int) -> None:
        """Remove the entries from number ``entries`` on; their room becomes zeros again."""
        if entries >= self.entries:
            return
        self.write_out()
        self._entries = self._written = entries
        size = self.entry.size
        file = self._handle()
        file.truncate(entries * size)
        file.truncate(self._length_bytes)
        self._note_last(file.read((entries - 1) * size, size) if entries else None)

    def _handle(self) -> DiskFile:
        if self._file:
            return self._file
        if not self._is_loaded:
            self._load()
        self._file = self._disk.open(self.path, create=True)
        if not self._exists:
            self._file.truncate(self.max_bytes)
            self._exists = True
        return self._file

    def _load(self) -> None:
        if self._is_closed:
            raise LogClosedError(f"{self.path}: closed")
        size, last = self.entry.size, None
        with self._reading() as (source, count):
            self._exists = source is not None
            self._set_length(self.max_bytes if source is None else source.size_bytes)
            if source and count:
                last = source.read((count - 1) * size, size)
        self._entries = self._written = count
        self._note_last(last)
        self._is_loaded = True

    def _set_length(self, size_bytes: int) -> None:
        self._length_bytes = size_bytes
        self._max_entries = size_bytes // self.entry.size

    def _check_length(self) -> None:
        if self._length_bytes % self.entry.size:
            raise self._corrupt(f"{self._length_bytes} bytes are no whole number of entries")

    def _corrupt(self, problem: str) -> CorruptIndexError:
        return CorruptIndexError(f"{self.path}: {problem}", remedy="it is rebuilt when the segment is recovered")
