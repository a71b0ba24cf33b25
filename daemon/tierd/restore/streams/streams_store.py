"""StreamsStore: the facts about a store of a Kafka Streams application that its changelog does not have (DESIGN 13)."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

WHOLE_STORE: Final = 0
"""Segment id of a store that has no segment directories."""

_MAX_SEGMENTS = 1000  # Streams, and tierd, open every live segment: a retention of 1,000 intervals is a mistake
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)  # Kafka Streams: Named.validate
_REFUSED_NAMES = frozenset((".", "..", "rocksdb"))


class StreamsStoreType(StrEnum):
    """Layout of a store on disk. The DSL of Kafka Streams makes the timestamped ones, ``session`` and ``versioned``."""

    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped-key-value"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped-window"
    SESSION = "session"
    VERSIONED = "versioned"

    @property
    def is_timestamped(self) -> bool:
        """Return True if values begin with the record's timestamp: 8 bytes, big-endian."""
        return self in {StreamsStoreType.TIMESTAMPED_KEY_VALUE, StreamsStoreType.TIMESTAMPED_WINDOW}

    @property
    def has_retention(self) -> bool:
        """Return True if the store forgets what is older than its retention, one segment at a time."""
        return self not in {StreamsStoreType.KEY_VALUE, StreamsStoreType.TIMESTAMPED_KEY_VALUE}

    @property
    def has_segment_directories(self) -> bool:
        """Return True if each segment is a RocksDB directory of its own."""
        return self.has_retention and self is not StreamsStoreType.VERSIONED

    @property
    def column_family(self) -> str | None:
        """Return the column family that holds the data; None for RocksDB's default one."""
        return "keyValueWithTimestamp" if self.is_timestamped else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsStore:
    """One store of an application, as its topology declares it.

    Attributes:
        name: of the store.
        changelog: topic of the changelog; the source topic itself for a store that Streams restores from that.
        subtopology: number of the subtopology, the first half of the task id.
        retention_ms: retention period of a window or session store, history retention of a versioned one.
        segment_interval_ms: the length of time that one segment covers.

    Raises:
        ValueError: a value is missing, superfluous or impossible; the message names it.
    """

    name: str
    changelog: str
    subtopology: int
    type: StreamsStoreType
    retention_ms: int | None = None
    segment_interval_ms: int | None = None

    def __post_init__(self) -> None:
        if not is_streams_name(self.name) or self.name in _REFUSED_NAMES or ".checkpoint".startswith(self.name):
            raise ValueError(f"{self.name!r} cannot be the name of a store")
        if not is_streams_name(self.changelog):
            raise ValueError(f"{self.changelog!r} cannot be the name of a topic")
        if self.subtopology < 0:
            raise ValueError(f"subtopology {self.subtopology} is negative")
        given = (self.retention_ms is not None, self.segment_interval_ms is not None)
        if given != (self.type.has_retention, self.type.has_retention):
            needs = "needs retention and segment_interval" if self.type.has_retention else "has no retention"
            raise ValueError(f"a store of type {self.type} {needs}")
        if self.type.has_retention:
            self._check_segments()

    def _check_segments(self) -> None:
        retention_ms, interval_ms = self.retention_ms or 0, self.segment_interval_ms or 0
        if retention_ms < 0 or interval_ms < 1:
            raise ValueError("retention must not be negative, and segment_interval is at least 1ms")
        if retention_ms // interval_ms > _MAX_SEGMENTS:
            raise ValueError(f"retention is more than {_MAX_SEGMENTS} times as long as segment_interval")

    def task(self, partition: int) -> str:
        """Return the id of the task that has the store for ``partition``; the name of its directory."""
        return f"{self.subtopology}_{partition}"

    @property
    def directory(self) -> PurePosixPath:
        """Return the directory of the store inside that of its task."""
        return PurePosixPath(self.name) if self.type.has_segment_directories else PurePosixPath("rocksdb", self.name)

    def segment_directory(self, segment_id: int) -> PurePosixPath:
        """Return the RocksDB directory of a segment inside ``directory`` (Kafka: AbstractSegments.segmentName)."""
        if not self.type.has_segment_directories:
            return PurePosixPath()
        return PurePosixPath(f"{self.name}.{segment_id * (self.segment_interval_ms or 0)}")

    def segment_id(self, timestamp_ms: int) -> int:
        """Return the segment that covers ``timestamp_ms``; ``WHOLE_STORE`` for a store without segments.

        Division as in Java, towards zero (Kafka: AbstractSegments.segmentId).
        """
        if self.segment_interval_ms is None:
            return WHOLE_STORE
        quotient = abs(timestamp_ms) // self.segment_interval_ms
        return quotient if timestamp_ms >= 0 else -quotient

    def first_live_segment(self, stream_time_ms: int) -> int:
        """Return the oldest segment that the store keeps at ``stream_time_ms``, the highest timestamp so far."""
        if self.retention_ms is None:
            return WHOLE_STORE
        return self.segment_id(stream_time_ms - self.retention_ms)


def is_streams_name(text: str) -> bool:
    """Return True if ``text`` can be part of a Kafka topic name; the names of stores and applications are."""
    return bool(_NAME.fullmatch(text)) and text not in {".", ".."}
