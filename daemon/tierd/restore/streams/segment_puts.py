"""SegmentPuts: puts and deletes that records of a changelog mean for a window or session store. Pure.

::

    window key    key … │ window start, 8 bytes │ sequence number, 4 bytes     Kafka: WindowKeySchema
    session key   key … │ session end, 8 bytes  │ session start, 8 bytes       Kafka: SessionKeySchema
    timestamped value   record timestamp, 8 bytes │ value …                    Kafka: RecordConverters

Numbers are big-endian and signed. The changelog has the same keys as the store. The time that picks the segment of a
window is its start, that of a session its end. Stream time is the highest such time so far, expired records and
deletes included; a segment below ``StreamsStore.first_live_segment`` is gone. A key is always in the same segment, so
the last record of a key decides, however the records are cut into batches.
"""

from dataclasses import dataclass
from typing import Final

from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords, converted
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType

Puts = dict[bytes, bytes | None]
"""New value of each key; None deletes the key."""

NO_STREAM_TIME: Final = -1
"""Stream time before the first record (Kafka: ConsumerRecord.NO_TIMESTAMP)."""

_TIME_FROM_END: Final = {
    StreamsStoreType.WINDOW: 12,
    StreamsStoreType.TIMESTAMPED_WINDOW: 12,
    StreamsStoreType.SESSION: 16,
}
_ENTRY_BYTES: Final = 120  # of the dict, the key object and the value object


@dataclass(frozen=True, slots=True)
class AppliedRecords:
    """State of a store after some records.

    Attributes:
        offset: of the last one applied, inclusive.
        stream_time_ms: highest time that picks a segment, of all of them.
    """

    offset: int
    stream_time_ms: int


class SegmentPuts:
    """Changes that were not written yet, of a window or session store.

    Attributes:
        stream_time_ms: highest segment time so far; ``NO_STREAM_TIME`` before the first.
        size_bytes: memory that the changes take, roughly; never less than the bytes of keys and values.
        skipped: records without a key so far, which mean nothing to a store.
    """

    def __init__(self, store: StreamsStore, *, stream_time_ms: int = NO_STREAM_TIME) -> None:
        self.stream_time_ms = stream_time_ms
        self.size_bytes = 0
        self.skipped = 0
        self._store = store
        self._segments: dict[int, Puts] = {}

    @property
    def first_live_segment(self) -> int:
        """Return the oldest segment that the store keeps now."""
        return self._store.first_live_segment(self.stream_time_ms)

    def add(self, records: ChangelogRecords) -> None:
        """Take the changes that ``records`` mean.

        Raises:
            StoreFailedError: a key is too short for a store of this type; the topology names a wrong type.
        """
        store, segments = self._store, self._segments
        from_end = _TIME_FROM_END[store.type]
        interval_ms = store.segment_interval_ms or 1
        stream_time_ms, first_live = self.stream_time_ms, self.first_live_segment
        values = converted(records, timestamped=store.type.is_timestamped).values
        for index, (key, value) in enumerate(zip(records.keys, values, strict=True)):
            if key is None:
                self.skipped += 1
                continue
            time_ms = _time_in(key, from_end) if len(key) >= from_end else self._refuse(records, index)
            if time_ms > stream_time_ms:
                stream_time_ms = time_ms
                first_live = store.first_live_segment(time_ms)
            segment_id = time_ms // interval_ms if time_ms >= 0 else store.segment_id(time_ms)
            if segment_id >= first_live:
                segments.setdefault(segment_id, {})[key] = value
                self.size_bytes += len(key) + len(value or b"") + _ENTRY_BYTES
        self.stream_time_ms = stream_time_ms

    def take(self) -> dict[int, Puts]:
        """Return the changes by segment id, without expired segments, and forget them."""
        taken, self._segments, self.size_bytes = self._segments, {}, 0
        first_live = self.first_live_segment
        return {segment_id: puts for segment_id, puts in taken.items() if segment_id >= first_live}

    def _refuse(self, records: ChangelogRecords, index: int) -> int:
        key, offset = records.keys[index], records.offsets[index]
        raise StoreFailedError(
            self._store.name,
            f"the record at offset {offset} of {self._store.changelog} has a key of {len(key or b'')} bytes, too short "
            f"for a store of type {self._store.type}",
            remedy="correct the type of the store in the topology file, then restore again",
        )


def _time_in(key: bytes, from_end: int) -> int:
    start = len(key) - from_end
    return int.from_bytes(key[start : start + 8], "big", signed=True)
