"""The part of a log that any thread may use beside the writer of the log (log-format 4.5 and 8)."""

from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from tierd.errors import OffsetOutOfRangeError
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.partition.log_state import LogState
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.records.record_rules import ValidationCounters
from tierd.log.segments.log_read import FetchData
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.offset_lookup import LookupFacts, RemoteLookup, offset_by_timestamp
from tierd.model import IsolationLevel, Lineage, TimestampOffset, TopicPartition


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """Gauges of one log (log-format 12; Kafka: kafka.log:type=Log)."""

    segment_count: int
    log_start_offset: int
    log_end_offset: int
    size_bytes: int


class LogView:
    """A log without the calls of its writer. Any thread may read and may move the high watermark."""

    def __init__(self, state: LogState) -> None:
        self._state = state

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory}, {self.log_start_offset} to {self.log_end_offset})"

    # Identity and bounds

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition of the log."""
        return self._state.topic_partition

    @property
    def directory(self) -> Path:
        """Return the directory of the log's files."""
        return self._state.segments.directory

    @property
    def config(self) -> LogConfig:
        """Return the settings of the log."""
        return self._state.config

    @property
    def topic_id(self) -> UUID | None:
        """Return the id of the topic; None until the log learns it."""
        return self._state.topic_id

    @property
    def log_start_offset(self) -> int:
        """Return the first offset that may be read from the local log or from the tier."""
        return self._state.offsets.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """Return the first offset on local disk."""
        return self._state.offsets.local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Return the offset of the next record."""
        return self._state.segments.log_end.offset

    @property
    def high_watermark(self) -> int:
        """Return the exclusive end of the records that every in-sync replica has."""
        return self._state.offsets.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """Return the exclusive end of the decided records: no transaction is open below this offset."""
        return self._state.offsets.last_stable.offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the earliest transaction that is open or not replicated; None without one."""
        unstable = self._state.offsets.first_unstable
        return None if unstable is None else unstable.offset

    @property
    def recovery_point(self) -> int:
        """Return the first offset that may not be on stable storage."""
        return self._state.segments.recovery_point

    @property
    def highest_remote_offset(self) -> int:
        """Return the last offset that is known to be in the tier, inclusive; -1 for an empty tier."""
        return self._state.offsets.highest_remote_offset

    @property
    def size_bytes(self) -> int:
        """Return the size of all log files together."""
        return self._state.segments.segments.size_bytes

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """Return the segments, ascending; the last segment is active."""
        return self._state.segments.segments.values

    @property
    def segment_count(self) -> int:
        """Return the number of segments."""
        return len(self.segments)

    def statistics(self) -> LogStatistics:
        """Return the gauges of the log at this moment."""
        return LogStatistics(self.segment_count, self.log_start_offset, self.log_end_offset, self.size_bytes)

    @property
    def refused(self) -> ValidationCounters:
        """Return a copy of the counters of refused records, by reason, since the log was opened."""
        return replace(self._state.counters)

    @property
    def leader_epochs(self) -> Lineage:
        """Return the leader epochs and their first offsets; empty after the directory was renamed for deletion."""
        return self._state.lineage

    @property
    def producers(self) -> ProducerStateManager:
        """Return the state of the producers; read only."""
        return self._state.producers

    @property
    def is_tiered(self) -> bool:
        """Return True when the segments of the log are copied to a tier."""
        return self._state.is_tiered

    # High watermark

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, clipped to [log start, log end], and return the new value. For any thread."""
        return self._state.offsets.update_high_watermark(LogOffset(offset))

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark as a leader does, and return true if the value rose. For any thread.

        Raises:
            ValueError: the offset is above the log end.
        """
        return self._state.offsets.increment_high_watermark(LogOffset(offset))

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel | None = IsolationLevel.READ_UNCOMMITTED,
        min_one_message: bool = True,
    ) -> FetchData:
        """Read batches from the one that holds ``offset`` or follows it; the last batch may be incomplete.

        Args:
            offset: of the first record that is wanted.
            max_bytes: largest size of the answer; the first batch alone may be larger.
            isolation: None reads up to the log end, as a replica does.
            min_one_message: return the first batch complete even if it is larger than ``max_bytes``.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start or above the log end.
            ValueError: ``max_bytes`` is negative.
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
                with_aborted=isolation is IsolationLevel.READ_COMMITTED,
            )

    def offset_for_timestamp(
        self,
        timestamp_ms: int,
        *,
        isolation: IsolationLevel | None = None,
        remote: RemoteLookup | None = None,
    ) -> TimestampOffset | None:
        """Find the first record whose timestamp is at least ``timestamp_ms``, or the place of a name (log-format 8.2).

        Args:
            timestamp_ms: or ``LATEST``, ``EARLIEST``, ``MAX_TIMESTAMP``, ``EARLIEST_LOCAL``, ``LATEST_TIERED``.
            isolation: None searches up to the log end, as a replica does.
            remote: searched first, if the log is tiered.

        Returns:
            None when there is no such record, or the requester may not read the record yet.

        Raises:
            ValueError: ``timestamp_ms`` is negative and names no offset.
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
        """Return the aborted transactions that concern a reader of ``[from_offset, upper_offset)``.

        Raises:
            LogDirOfflineError: the log dir is offline, or a file cannot be read.
        """
        with self._state.offline.storage():
            return self._state.segments.reader.aborted_transactions(from_offset, upper_offset)

    def _last_fetchable(self, isolation: IsolationLevel | None) -> int | None:
        match isolation:
            case None:
                return None
            case IsolationLevel.READ_UNCOMMITTED:
                return self.high_watermark
            case IsolationLevel.READ_COMMITTED:
                return self.last_stable_offset

    def _bound(self, isolation: IsolationLevel | None) -> LogOffset:
        match isolation:
            case None:
                return self._state.segments.log_end
            case IsolationLevel.READ_UNCOMMITTED:
                return self._state.offsets.locate(self._state.offsets.high_watermark)
            case IsolationLevel.READ_COMMITTED:
                return self._state.offsets.locate(self._state.offsets.last_stable)
