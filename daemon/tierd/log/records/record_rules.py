"""RecordRules: a leader's rules for every single record (log-format 4.3; Kafka: LogValidator.validateRecord)."""

from dataclasses import dataclass

from tierd.errors import TierErrorCode
from tierd.log.log_errors import RecordValidationError
from tierd.log.records.batch_header import IS_LOG_APPEND_TIME, BatchHeader
from tierd.log.records.log_config import MAX_LONG, LogConfig, TimestampType
from tierd.log.records.record_columns import RecordColumns

MAX_RECORD_ERRORS = 10_000
"""Of one batch that are kept; the answer to a bad batch must not be larger than the batch."""

_NO_TIMESTAMP = -1


@dataclass(slots=True)
class ValidationCounters:
    """Number of refusals of a leader, by reason (Kafka: BrokerTopicMetrics, Invalid…PerSec)."""

    no_key: int = 0
    invalid_magic: int = 0
    invalid_checksum: int = 0
    invalid_sequence: int = 0
    invalid_offset: int = 0


class RecordRules:
    """The rules of one topic at one time, with the refusals of the present batch."""

    def __init__(self, config: LogConfig, *, now_ms: int, counters: ValidationCounters) -> None:
        self._is_compacted = config.is_compacted
        self._is_create_time = config.message_timestamp_type is TimestampType.CREATE_TIME
        self._now_ms = now_ms
        before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        self._earliest_ms = None if before == MAX_LONG else now_ms - before
        self._latest_ms = None if after == MAX_LONG else now_ms + after
        self._counters = counters
        self._errors: list[tuple[int, str]] = []
        self._error_count = 0
        self._has_timestamp_error = False

    @property
    def error_count(self) -> int:
        """Return the number of records that were refused so far."""
        return self._error_count

    def refuse(self, index: int, problem: str) -> None:
        """Note that the record at ``index`` breaks some other rule."""
        self._error_count += 1
        if len(self._errors) < MAX_RECORD_ERRORS:
            self._errors.append((index, problem))

    def refuse_magic(self, index: int, problem: str) -> None:
        """Note a record of another format than its batch."""
        self._counters.invalid_magic += 1
        self.refuse(index, problem)

    def refuse_timestamp(self, index: int, problem: str) -> None:
        """Note a record whose timestamp cannot be."""
        self._has_timestamp_error = True
        self.refuse(index, problem)

    def check(self, batch: BatchHeader, index: int, *, has_key: bool, timestamp_ms: int) -> None:
        """Check one record: its key, and if that is right its timestamp."""
        if self._is_compacted and not has_key:
            self._counters.no_key += 1
            self.refuse(index, "a compacted topic takes no record without key")
        elif self._is_create_time and timestamp_ms != _NO_TIMESTAMP:
            if not self._is_in_range(timestamp_ms):
                self.refuse_timestamp(index, f"timestamp {timestamp_ms} is too far from {self._now_ms}, the broker's")
        elif batch.magic and batch.attributes & IS_LOG_APPEND_TIME:
            self.refuse_timestamp(index, "LogAppendTime is the broker's to set, not the producer's")

    def check_columns(self, batch: BatchHeader, records: RecordColumns, *, first_index: int) -> None:
        """Check records of a batch, the first of which has this index: together, or one by one if anything is wrong."""
        if not len(records) or self._are_all_valid(batch, records):
            return
        sizes = records.columns.key_size
        for index, timestamp_ms in enumerate(records.timestamps_ms()):
            self.check(batch, first_index + index, has_key=sizes[index] >= 0, timestamp_ms=timestamp_ms)

    def _are_all_valid(self, batch: BatchHeader, records: RecordColumns) -> bool:
        """Return True if whole columns prove all records valid; False if each record has to be checked."""
        if batch.attributes & IS_LOG_APPEND_TIME:
            return False
        if self._is_compacted and min(records.columns.key_size) < 0:
            return False
        if not self._is_create_time or (self._earliest_ms is None and self._latest_ms is None):
            return True
        timestamps_ms = records.columns.timestamp_ms.tolist()
        return self._is_in_range(min(timestamps_ms)) and self._is_in_range(max(timestamps_ms))

    def _is_in_range(self, timestamp_ms: int) -> bool:
        return (self._earliest_ms is None or timestamp_ms >= self._earliest_ms) and (
            self._latest_ms is None or timestamp_ms <= self._latest_ms
        )

    def conclude(self, batch: BatchHeader) -> None:
        """End a batch.

        Raises:
            RecordValidationError: records of it were refused; ``INVALID_TIMESTAMP`` if one is for its timestamp.
        """
        if not self._error_count:
            return
        shown = "; ".join(f"record {index}: {problem}" for index, problem in self._errors[:3])
        raise RecordValidationError(
            f"{batch.name}: {self._error_count} records refused: {shown}",
            record_errors=self._errors,
            code=TierErrorCode.INVALID_TIMESTAMP if self._has_timestamp_error else None,
        )
