"""OffsetIndexFile: the ``.index`` file of a segment that is being written (log-format 3.1)."""

from pathlib import Path

from tierd.errors import LogError, TierErrorCode
from tierd.log.files.disk import Disk
from tierd.log.indexes.index_file import IndexFile
from tierd.log.indexes.index_lookup import lookup_offset, lookup_upper_bound
from tierd.log.indexes.offset_index import ENTRY, OffsetPosition


class OffsetIndexFile(IndexFile[OffsetPosition]):
    """Offset to position; offsets strictly increase (Kafka: OffsetIndex)."""

    entry = ENTRY

    def __init__(self, disk: Disk, path: Path, *, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path, base_offset=base_offset, max_bytes=max_bytes)
        self._last_offset, self._last_position = base_offset, 0

    @property
    def is_full(self) -> bool:
        """Return True if the index has room for no further entry."""
        return (self._entries if self._is_loaded else self.entries) >= self._max_entries

    @property
    def last_entry(self) -> OffsetPosition:
        """Return the last entry; (base offset, 0) without an entry."""
        if not self._is_loaded:
            self._load()
        return OffsetPosition(self._last_offset, self._last_position)

    @property
    def last_offset(self) -> int:
        """Return the offset of the last entry; the base offset without an entry."""
        if not self._is_loaded:
            self._load()
        return self._last_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry: the set with last offset ``offset`` begins at ``position``. ``write_out`` writes the entry.

        Raises:
            ValueError: the index is full.
            LogError: ``offset`` does not follow the last entry.
            OffsetOverflowError: ``offset`` is too far from the base.
        """
        count = self._entries if self._is_loaded else self.entries
        if count >= self._max_entries:
            raise ValueError(f"{self.path}: full with {count} entries")
        if count and offset <= self._last_offset:
            raise LogError(
                f"{self.path}: offset {offset} does not follow {self._last_offset}",
                code=TierErrorCode.INVALID_INDEX_OFFSET,
            )
        self._pending += ENTRY.pack(self._relative(offset), position)
        self._entries = count + 1
        self._last_offset, self._last_position = offset, position

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the largest entry at or below ``offset``; (base offset, 0) without such an entry."""
        with self._reading() as (source, count):
            if source is None:
                return OffsetPosition(self.base_offset, 0)
            return lookup_offset(source, base_offset=self.base_offset, offset=offset, count=count)

    def upper_bound(self, position: int, size: int) -> OffsetPosition | None:
        """Return the first entry at or behind ``position + size``, whose offset is above the read; None if unknown."""
        with self._reading() as (source, count):
            if source is None:
                return None
            return lookup_upper_bound(
                source, base_offset=self.base_offset, position=position, size_bytes=size, count=count
            )

    def sanity_check(self) -> None:
        """Check for contradictions that no writer leaves behind.

        Raises:
            CorruptIndexError: the last offset is below the base, or the file ends within an entry.
        """
        if self.entries and self._last_offset < self.base_offset:
            raise self._corrupt(f"offset {self._last_offset} is below the segment's base")
        self._check_length()

    def _note_last(self, raw: bytes | None) -> None:
        last = (self.base_offset, 0) if raw is None else self._parse(raw)
        self._last_offset, self._last_position = last

    def _parse(self, raw: bytes) -> OffsetPosition:
        relative, position = ENTRY.unpack(raw)
        return OffsetPosition(self.base_offset + relative, position)
