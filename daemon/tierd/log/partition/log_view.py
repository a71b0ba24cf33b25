"""LogView: what any thread may ask of a log, beside its writer (log-format 4.5 and 8)."""

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from uuid import UUID

from tierd.errors import OffsetOutOfRangeError
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.partition.exposed_offsets import HighWatermarkListener
from tierd.log.partition.log_state import LogState
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.records.record_rules import ValidationCounters
from tierd.log.segments.log_read import FetchData
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.offset_lookup import LookupFacts, RemoteLookup, TimestampAndOffset, offset_by_timestamp
from tierd.model import Lineage, TopicPartition


class Isolation(Enum):
    """How far a read may go (Kafka: FetchIsolation)."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """The gauges of one log (log-format 12; Kafka: kafka.log:type=Log)."""

    segment_count: int
    log_start_offset: int
    log_end_offset: int
    size_bytes: int


class LogView:
    """A log as everybody but its writer sees it. Any thread may read, and move the high watermark."""

    def __init__(self, state: LogState) -> None:
        self._state = state

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory}, {self.log_start_offset} to {self.log_end_offset})"

    # What it is, and its bounds

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose log it is."""
        return self._state.topic_partition

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._state.segments.directory

    @property
    def config(self) -> LogConfig:
        """Its settings."""
        return self._state.config

    @property
    def topic_id(self) -> UUID | None:
        """Which incarnation of the topic it is of; None as long as nobody has said."""
        return self._state.topic_id

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read, in the log or its tier."""
        return self._state.offsets.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset that is still on local disk."""
        return self._state.offsets.local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._state.segments.log_end.offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what every replica has."""
        return self._state.offsets.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what is decided: below it no transaction is open."""
        return self._state.offsets.last_stable.offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction began that is open, or not yet replicated; None without one."""
        unstable = self._state.offsets.first_unstable
        return None if unstable is None else unstable.offset

    @property
    def recovery_point(self) -> int:
        """The first offset that is not known to be on stable storage."""
        return self._state.segments.recovery_point

    @property
    def highest_remote_offset(self) -> int:
        """The last offset that is known to be in the tier, inclusive; -1 without one."""
        return self._state.offsets.highest_remote_offset

    @property
    def size_bytes(self) -> int:
        """Of all log files."""
        return self._state.segments.segments.size_bytes

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """Its segments, ascending; the last one is active."""
        return self._state.segments.segments.values

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self.segments)

    def statistics(self) -> LogStatistics:
        """What is to be shown of it at this moment."""
        return LogStatistics(self.segment_count, self.log_start_offset, self.log_end_offset, self.size_bytes)

    @property
    def refused(self) -> ValidationCounters:
        """Return how often records were refused since the log was opened, by reason; a copy of that moment."""
        return replace(self._state.counters)

    @property
    def leader_epochs(self) -> Lineage:
        """Which leader epoch wrote what; empty once the directory was renamed away."""
        epochs = self._state.leader_epochs
        return Lineage() if epochs is None else epochs.lineage

    @property
    def producers(self) -> ProducerStateManager:
        """What is known of its producers; to be looked at only."""
        return self._state.producers

    @property
    def is_tiered(self) -> bool:
        """Whether its segments go to a tier."""
        return self._state.is_tiered

    # High watermark

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, within [log start, log end]; return what it became. Any thread."""
        return self._state.offsets.update_high_watermark(LogOffset(offset))

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Like ``update_high_watermark``; None when it stays what it was."""
        with self._state.offsets.lock:
            before = self.high_watermark
            after = self.update_high_watermark(offset)
        return None if after == before else after

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark, as a leader does; return whether it rose. Any thread.

        Raises:
            ValueError: above the log end.
        """
        return self._state.offsets.increment_high_watermark(LogOffset(offset))

    def add_high_watermark_listener(self, listener: HighWatermarkListener) -> None:
        """Call ``listener`` with every high watermark that is set from now on; it must not block."""
        self._state.offsets.add_listener(listener)

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = True,
    ) -> FetchData:
        """Read whole batches from the one that holds ``offset`` or follows it; the last one may be cut off.

        Raises:
            OffsetOutOfRangeError: below the log start, or above the log end.
            ValueError: a negative ``max_bytes``.
            LogDirOfflineError: the log dir is offline, or the file cannot be read.
        """
        with self._state.offline.storage():
            if offset < self.log_start_offset:
                raise OffsetOutOfRangeError(
                    f"{self.topic_partition}: offset {offset} is below the log start {self.log_start_offset}",
                    remedy="read from an offset in the log",
                )
            return self._state.segments.reader.read(
                offset,
                max_bytes=max_bytes,
                bound=self._bound(isolation),
                min_one_message=min_one_message,
                with_aborted=isolation is Isolation.TXN_COMMITTED,
            )

    def offset_for_timestamp(
        self,
        timestamp_ms: int,
        *,
        isolation: Isolation = Isolation.LOG_END,
        remote: RemoteLookup | None = None,
    ) -> TimestampAndOffset | None:
        """Find the first record at or behind a timestamp, or what a negative number stands for (log-format 8.2).

        Args:
            timestamp_ms: or ``LATEST``, ``EARLIEST``, ``MAX_TIMESTAMP``, ``EARLIEST_LOCAL``, ``LATEST_TIERED``.
            isolation: what the requester may read: a replica all of it.
            remote: asked first, if the log is tiered.

        Returns:
            None when there is no such record, or the requester may not read it yet.

        Raises:
            ValueError: a negative number that stands for nothing.
            LogDirOfflineError: the log dir is offline, or a file cannot be read.
        """
        offsets = self._state.offsets
        with self._state.offline.storage():
            facts = LookupFacts(
                log_start_offset=offsets.log_start_offset,
                local_log_start_offset=offsets.local_log_start_offset,
                log_end_offset=self.log_end_offset,
                lineage=self.leader_epochs,
                last_fetchable_offset=self._last_fetchable(isolation),
                is_tiered=self.is_tiered,
                highest_remote_offset=offsets.highest_remote_offset,
            )
            return offset_by_timestamp(self._state.segments.reader, timestamp_ms, facts, remote=remote)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that a reader of ``[from_offset, upper_offset)`` has to know.

        Raises:
            LogDirOfflineError: the log dir is offline, or a file cannot be read.
        """
        with self._state.offline.storage():
            return self._state.segments.reader.aborted_transactions(from_offset, upper_offset)

    def _last_fetchable(self, isolation: Isolation) -> int | None:
        match isolation:
            case Isolation.LOG_END:
                return None
            case Isolation.HIGH_WATERMARK:
                return self.high_watermark
            case Isolation.TXN_COMMITTED:
                return self.last_stable_offset

    def _bound(self, isolation: Isolation) -> LogOffset:
        match isolation:
            case Isolation.LOG_END:
                return self._state.segments.log_end
            case Isolation.HIGH_WATERMARK:
                return self._state.offsets.locate(self._state.offsets.high_watermark)
            case Isolation.TXN_COMMITTED:
                return self._state.offsets.locate(self._state.offsets.last_stable)
