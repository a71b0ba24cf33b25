"""VersionPuts: puts and deletes that records of a changelog mean for a versioned store. Pure but for the reads.

::

    -1 as 8 bytes │ key          →  timestamp 8 │ value       the latest value; none after a tombstone
    segment id 8  │ key          →  VersionRow                older versions, by the end of their validity

The store is one RocksDB directory, and a segment is a prefix of its keys (Kafka: RocksDBVersionedStore,
LogicalKeyValueSegment). The rules are those of ``RocksDBVersionedStore.doPut``, one record at a time: the result is
what the application itself wrote while it processed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.streams.segment_puts import NO_STREAM_TIME, Puts
from tierd.restore.streams.streams_store import StreamsStore
from tierd.restore.streams.version_row import Version, VersionRow

Read = Callable[[bytes], bytes | None]

_LATEST: Final = -1
_ENTRY_BYTES: Final = 120


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """Changes to write as one unit: first the ranges of expired segments go, then come the puts.

    Attributes:
        expired: segment ids whose keys are to be deleted; no put is in one of them.
        puts: by key in the store.
    """

    expired: list[int] = field(default_factory=list)
    puts: Puts = field(default_factory=dict)


class VersionPuts:
    """Changes that were not written yet, of a versioned store.

    Attributes:
        stream_time_ms: highest timestamp so far; ``NO_STREAM_TIME`` before the first.
        size_bytes: memory that the changes take, roughly.
        skipped: records without a key so far.
    """

    def __init__(
        self, store: StreamsStore, read: Read, *, stream_time_ms: int = NO_STREAM_TIME, segments: set[int] | None = None
    ) -> None:
        """Begin without changes.

        Args:
            store: of type ``versioned``.
            read: returns the written value of a key in the store.
            stream_time_ms: as of the written changes.
            segments: ids of the segments that have written keys.
        """
        self.stream_time_ms = stream_time_ms
        self.size_bytes = 0
        self.skipped = 0
        self._store = store
        self._read = read
        self._segments = segments if segments is not None else set()
        self._puts: Puts = {}
        self._expired: list[int] = []

    def add(self, records: ChangelogRecords) -> None:
        """Take the changes that ``records`` mean.

        Raises:
            ValueError: a written row cannot be parsed.
        """
        retention_ms = self._store.retention_ms or 0
        for key, value, timestamp_ms in zip(records.keys, records.values, records.timestamps_ms, strict=True):
            if key is None:
                self.skipped += 1
            elif timestamp_ms >= self.stream_time_ms - retention_ms:
                self.stream_time_ms = max(self.stream_time_ms, timestamp_ms)
                self._expire()
                self._put(key, Version(timestamp_ms, value))

    def take(self) -> VersionChanges:
        """Return the changes and forget them; the caller writes them before the next ``add``."""
        changes = VersionChanges(self._expired, self._puts)
        self._expired, self._puts, self.size_bytes = [], {}, 0
        return changes

    def _put(self, key: bytes, version: Version) -> None:
        """Put one version (Kafka: doPut)."""
        found_ms: int | None = None  # timestamp of the oldest version that is newer than the one to put
        latest = self._get(_LATEST, key)
        if latest is not None:
            latest_ms = int.from_bytes(latest[:8], "big", signed=True)
            if version.valid_from_ms >= latest_ms:
                if version.valid_from_ms > latest_ms:
                    self._end_validity(key, Version(latest_ms, latest[8:]), valid_to_ms=version.valid_from_ms)
                self._set_latest(key, version)
                return
            found_ms = latest_ms
        for segment_id in self._segments_from(version.valid_from_ms):
            row = self._row(segment_id, key)
            if row is None:
                continue
            if row.next_ms <= version.valid_from_ms:
                break
            if row.oldest_ms <= version.valid_from_ms:
                self._put_inside(segment_id, key, row, version)
                return
            if row.oldest_ms < self.stream_time_ms - (self._store.retention_ms or 0):
                return
            found_ms = row.oldest_ms
        if found_ms is not None:
            self._put_before(found_ms, key, version)
        elif version.value is not None:
            self._set_latest(key, version)
        else:
            self._put_newest_tombstone(key, version)

    def _end_validity(self, key: bytes, version: Version, *, valid_to_ms: int) -> None:
        """Move a version into the segment of the end of its validity, unless that has expired."""
        segment_id = self._live_segment(valid_to_ms)
        if segment_id is None:
            return
        row = self._row(segment_id, key)
        if row is None:
            row = VersionRow.of(version.value, valid_from_ms=version.valid_from_ms, valid_to_ms=valid_to_ms)
        else:
            row.add_newest(version, valid_to_ms=valid_to_ms)
        self._set_row(segment_id, key, row)

    def _put_inside(self, segment_id: int, key: bytes, row: VersionRow, version: Version) -> None:
        """Put a version into a row that covers its timestamp (Kafka: putToSegment)."""
        index = row.find(version.valid_from_ms)
        valid = row.versions[index]
        if valid.valid_from_ms == version.valid_from_ms:
            row.replace(index, version)
        elif self._store.segment_id(version.valid_from_ms) != segment_id:
            self._end_validity(key, valid, valid_to_ms=version.valid_from_ms)
            row.replace(index, version)
        else:
            row.insert(index, version)
        self._set_row(segment_id, key, row)

    def _put_before(self, found_ms: int, key: bytes, version: Version) -> None:
        """Put a version that is valid up to ``found_ms`` and that no row covers (Kafka: finishPut)."""
        segment_id = self._live_segment(found_ms)
        if segment_id is None:
            return
        row = self._row(segment_id, key)
        if row is None:
            row = VersionRow.of(version.value, valid_from_ms=version.valid_from_ms, valid_to_ms=found_ms)
        elif row.next_ms <= version.valid_from_ms:
            row.add_newest(version, valid_to_ms=found_ms)
        else:
            row.add_oldest(version)
        self._set_row(segment_id, key, row)

    def _put_newest_tombstone(self, key: bytes, version: Version) -> None:
        """Put a tombstone that nothing newer follows; it has no place among the latest values."""
        segment_id = self._live_segment(version.valid_from_ms)
        if segment_id is None:
            return
        row = self._row(segment_id, key)
        if row is None:
            row = VersionRow.of(None, valid_from_ms=version.valid_from_ms, valid_to_ms=version.valid_from_ms)
        elif row.next_ms == version.valid_from_ms:
            return
        else:
            row.add_newest(Version(row.next_ms, None), valid_to_ms=version.valid_from_ms)
        self._set_row(segment_id, key, row)

    # ---------------------------------------------------------------- keys and segments of the store

    def _segments_from(self, timestamp_ms: int) -> Iterator[int]:
        first = self._store.segment_id(timestamp_ms)
        return iter(sorted((segment_id for segment_id in self._segments if segment_id >= first), reverse=True))

    def _live_segment(self, timestamp_ms: int) -> int | None:
        """Return the segment of ``timestamp_ms``, which exists from now on; None if it has expired."""
        segment_id = self._store.segment_id(timestamp_ms)
        if segment_id < self._store.first_live_segment(self.stream_time_ms):
            return None
        self._segments.add(segment_id)
        return segment_id

    def _expire(self) -> None:
        first_live = self._store.first_live_segment(self.stream_time_ms)
        for segment_id in [segment_id for segment_id in self._segments if segment_id < first_live]:
            self._segments.discard(segment_id)
            self._expired.append(segment_id)
            prefix = segment_prefix(segment_id)
            for stored in [stored for stored in self._puts if stored.startswith(prefix)]:
                del self._puts[stored]

    def _row(self, segment_id: int, key: bytes) -> VersionRow | None:
        data = self._get(segment_id, key)
        return None if data is None else VersionRow.decode(data)

    def _get(self, segment_id: int, key: bytes) -> bytes | None:
        stored = segment_prefix(segment_id) + key
        return self._puts[stored] if stored in self._puts else self._read(stored)

    def _set_row(self, segment_id: int, key: bytes, row: VersionRow) -> None:
        self._set(segment_prefix(segment_id) + key, row.encode())

    def _set_latest(self, key: bytes, version: Version) -> None:
        stamp = version.valid_from_ms.to_bytes(8, "big", signed=True)
        self._set(segment_prefix(_LATEST) + key, None if version.value is None else stamp + version.value)

    def _set(self, stored: bytes, value: bytes | None) -> None:
        self._puts[stored] = value
        self.size_bytes += len(stored) + len(value or b"") + _ENTRY_BYTES


def segment_prefix(segment_id: int) -> bytes:
    """Return the prefix of the keys of a segment; -1 is the one of the latest values."""
    return segment_id.to_bytes(8, "big", signed=True)
