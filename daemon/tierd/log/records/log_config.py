"""LogConfig: Kafka's topic-level settings, as far as a log obeys them (log-format 11)."""

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Self

from tierd.errors import LogConfigError

MAX_INT = (1 << 31) - 1
MAX_LONG = (1 << 63) - 1
FROM_TOTAL = -2
"""Of a local retention: as the total one."""

_CODECS = frozenset({"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"})


_NEVER_NEGATIVE = (
    "segment_jitter_ms",
    "index_interval_bytes",
    "max_message_bytes",
    "file_delete_delay_ms",
    "min_compaction_lag_ms",
    "delete_retention_ms",
    "flush_ms",
    "message_timestamp_before_max_ms",
    "message_timestamp_after_max_ms",
)
_AT_LEAST_ONE = (
    "segment_ms",
    "max_compaction_lag_ms",
    "flush_messages",
    "producer_id_expiration_ms",
    "producer_id_expiration_check_interval_ms",
)


class TimestampType(Enum):
    """Source of a record's timestamp: its producer, or the leader at the append."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one log, in Kafka's words and with Kafka's defaults; -1 is no limit.

    Attributes:
        local_retention_ms: as ``local_retention_bytes``, ``FROM_TOTAL`` for the total one.
        compression_type: ``producer``, ``uncompressed`` or a codec's name.
        compression_level: of that codec; None for its default.
        remote_storage_enable: the topic is tiered; local retention then waits for the upload.
        index_each_batch: count ``index_interval_bytes`` per batch of an append, as brokers of 4.x do, not per set.
        strict_recovery: refuse to load a log whose flushed part is visibly damaged, where a broker would keep it.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    local_retention_ms: int = FROM_TOTAL
    local_retention_bytes: int = FROM_TOTAL
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    delete_retention_ms: int = 86_400_000
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = MAX_LONG
    compression_type: str = "producer"
    compression_level: int | None = None
    preallocate: bool = False
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    index_each_batch: bool = False
    strict_recovery: bool = False

    def __post_init__(self) -> None:
        self._require(self.segment_bytes >= 14, "segment.bytes must be at least 14")
        self._require(self.segment_index_bytes >= 4, "segment.index.bytes must be at least 4")
        for name in ("segment_bytes", "segment_index_bytes", "index_interval_bytes", "max_message_bytes"):
            self._require(getattr(self, name) <= MAX_INT, f"{name.replace('_', '.')} must not be above {MAX_INT}")
        for name in _NEVER_NEGATIVE:
            self._require(getattr(self, name) >= 0, f"{name.replace('_', '.')} must not be negative")
        for name in _AT_LEAST_ONE:
            self._require(getattr(self, name) >= 1, f"{name.replace('_', '.')} must be at least 1")
        self._require(0 <= self.min_cleanable_dirty_ratio <= 1, "min.cleanable.dirty.ratio must be from 0 to 1")
        self._require(self.compression_type in _CODECS, f"compression.type {self.compression_type!r} does not exist")
        self._require(
            bool(self.cleanup_policy) and self.cleanup_policy <= {"delete", "compact"},
            "cleanup.policy must be delete, compact, or both",
        )
        self._check_tiering()

    def _check_tiering(self) -> None:
        """Refuse settings that a tiered topic may not have (log-format 7.2)."""
        if not self.remote_storage_enable:
            return
        self._require(not self.is_compacted, "a tiered topic cannot be compacted")
        for name, local, total in (
            ("ms", self.local_retention_ms, self.retention_ms),
            ("bytes", self.local_retention_bytes, self.retention_bytes),
        ):
            if local == FROM_TOTAL:
                continue
            if self.remote_log_copy_disable:
                self._require(local == total, f"local.retention.{name} must equal retention.{name} or be -2")
            unlimited_within_limit = local == -1 and total != -1
            above = total != -1 and local > total
            self._require(not (unlimited_within_limit or above), f"local.retention.{name} is above retention.{name}")

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            raise LogConfigError(problem, remedy="see the topic settings in docs/formats.md")

    @property
    def is_compacted(self) -> bool:
        """Return True if the cleaner compacts this log."""
        return "compact" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Return the message time after which a segment is rolled, before jitter (log-format 5.1)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def is_copy_enabled(self) -> bool:
        """Return True if segments are copied to a tier, so that retention waits for their copies."""
        return self.remote_storage_enable and not self.remote_log_copy_disable

    @classmethod
    def from_kafka(cls, settings: dict[str, str]) -> Self:
        """Read Kafka's own names, as in ``segment.bytes=1048576``.

        Raises:
            LogConfigError: a name that a log does not know, or a value that it cannot have.
        """
        known = {field.name.replace("_", "."): field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in settings.items():
            if name not in known:
                raise LogConfigError(f"{name!r} is no setting of a log", remedy=f"one of {', '.join(sorted(known))}")
            values[known[name]] = _parse(known[name], text)
        return cls(**values)


def _parse(name: str, text: str) -> object:
    try:
        match name:
            case "cleanup_policy":
                return frozenset(part.strip() for part in text.split(",") if part.strip())
            case "compression_type":
                return text
            case "message_timestamp_type":
                return TimestampType(text)
            case (
                "preallocate"
                | "remote_storage_enable"
                | "remote_log_copy_disable"
                | "index_each_batch"
                | "strict_recovery"
            ):
                return {"true": True, "false": False}[text.lower()]
            case "min_cleanable_dirty_ratio":
                return float(text)
            case _:
                return int(text)
    except (ValueError, KeyError) as error:
        raise LogConfigError(f"{name.replace('_', '.')}: {text!r} is not a value it can have") from error
