"""The ``.timeindex`` file of a segment that is being written (log-format 3.1)."""

from pathlib import Path

from tierd.errors import LogError, TierErrorCode
from tierd.log.files.disk import Disk
from tierd.log.indexes.index_file import IndexFile
from tierd.log.indexes.index_lookup import lookup_timestamp
from tierd.log.indexes.time_index import ENTRY
from tierd.model import TimestampOffset


class TimeIndexFile(IndexFile[TimestampOffset]):
    """An index of timestamp to offset: timestamps strictly increase, offsets do not decrease (Kafka: TimeIndex)."""

    entry = ENTRY

    def __init__(self, disk: Disk, path: Path, *, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path, base_offset=base_offset, max_bytes=max_bytes)
        self._last = TimestampOffset(-1, base_offset)

    @property
    def is_full(self) -> bool:
        """Return True when only the entry that is reserved for the roll has room."""
        return (self._entries if self._is_loaded else self.entries) >= self._max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """Return the last entry; (-1, base offset) without an entry."""
        if not self._is_loaded:
            self._load()
        return self._last

    def maybe_append(self, timestamp_ms: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if its timestamp is larger than the last one; ``write_out`` writes it.

        Args:
            timestamp_ms: the largest timestamp so far; -1 without a timestamp.
            offset: last offset of the earliest batch with that timestamp.
            skip_full_check: use the reserved slot; the caller trims the file next.

        Raises:
            ValueError: the index is full, or the timestamp is below the last one.
            LogError: ``offset`` is below the last one.
            OffsetOverflowError: ``offset`` is too far from the base.
        """
        count = self._entries if self._is_loaded else self.entries
        if count >= self._max_entries - 1 and not skip_full_check:
            raise ValueError(f"{self.path}: full with {count} entries")
        last = self._last
        if count:
            if offset < last.offset:
                raise LogError(
                    f"{self.path}: offset {offset} is below {last.offset}", code=TierErrorCode.INVALID_INDEX_OFFSET
                )
            if timestamp_ms < last.timestamp_ms:
                raise ValueError(f"{self.path}: timestamp {timestamp_ms} is below {last.timestamp_ms}")
        if timestamp_ms > last.timestamp_ms:
            self._pending += ENTRY.pack(timestamp_ms, self._relative(offset))
            self._entries = count + 1
            self._last = TimestampOffset(timestamp_ms, offset)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the largest entry at or below ``timestamp_ms``; (-1, base offset) without such an entry."""
        with self._reading() as (source, count):
            if source is None:
                return TimestampOffset(-1, self.base_offset)
            return lookup_timestamp(source, base_offset=self.base_offset, timestamp_ms=timestamp_ms, count=count)

    def sanity_check(self) -> None:
        """Check for contradictions that no writer leaves behind.

        Raises:
            CorruptIndexError: the last timestamp is below the first, the last offset below the base, or the file ends
                within an entry.
        """
        if self.entries:
            if self._last.timestamp_ms < self.entry_at(0).timestamp_ms:
                raise self._corrupt(f"the last timestamp {self._last.timestamp_ms} is below the first")
            if self._last.offset < self.base_offset:
                raise self._corrupt(f"offset {self._last.offset} is below the segment's base")
        self._check_length()

    def _note_last(self, raw: bytes | None) -> None:
        self._last = TimestampOffset(-1, self.base_offset) if raw is None else self._parse(raw)

    def _parse(self, raw: bytes) -> TimestampOffset:
        timestamp_ms, relative = ENTRY.unpack(raw)
        return TimestampOffset(timestamp_ms, self.base_offset + relative)
