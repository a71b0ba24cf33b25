"""Plans of the segments to delete, from facts, no I/O (log-format 7; Kafka: UnifiedLog.deletableSegments)."""

from collections.abc import Callable
from dataclasses import dataclass

from tierd.log.records.log_config import FROM_TOTAL, LogConfig

_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_UNTIERED_TOPICS = _INTERNAL_TOPICS | {"__remote_log_metadata", "__cluster_metadata"}


@dataclass(frozen=True, slots=True)
class RetentionSegment:
    """Facts about a segment from which retention decides.

    Attributes:
        largest_timestamp_ms: of the records; for a segment without timestamps the modification time of its file.
    """

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts about a log from which retention decides.

    Attributes:
        local_log_start_offset: above ``log_start_offset`` only in a tiered log.
        highest_remote_offset: inclusive; -1 when nothing is in the tier.
        is_tiered: the segments of the topic go to a tier.
    """

    segments: tuple[RetentionSegment, ...]
    log_end_offset: int
    high_watermark: int
    log_start_offset: int
    local_log_start_offset: int
    highest_remote_offset: int = -1
    is_tiered: bool = False

    @property
    def size_bytes(self) -> int:
        """Return the size of all segments together."""
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """Number of segments to delete, counted from the oldest one.

    Attributes:
        count: number of segments.
        rolls_active: the active segment breaches a rule, too, and has to be rolled first, so that it can be copied.
    """

    count: int
    rolls_active: bool = False


@dataclass(frozen=True, slots=True)
class Breach:
    """Rule by which segments go, and its limit.

    Attributes:
        rule: ``log start offset``, ``retention size`` or ``retention time``.
        setting: name of the topic's setting that sets the limit; empty for the log start.
        limit: an offset, bytes or milliseconds, by the rule.
    """

    rule: str
    setting: str
    limit: int

    def fields(self) -> dict[str, object]:
        """Return the fields of an event about the rule: its name, the setting and the limit."""
        match self.rule:
            case "retention size":
                return {"breach": self.rule, "setting": self.setting, "limit_bytes": self.limit}
            case "retention time":
                return {"breach": self.rule, "setting": self.setting, "limit_ms": self.limit}
            case _:
                return {"breach": self.rule, "log_start_offset": self.limit}

    def fields_of_deletion(self, log: LogFacts, count: int) -> dict[str, object]:
        """Return the fields of an event about the removal of the ``count`` oldest segments of ``log``, at least one."""
        oldest = log.segments[:count]
        size_bytes = sum(segment.size_bytes for segment in oldest)
        return self.fields() | {
            "segments": [segment.base_offset for segment in oldest],
            "size_bytes": size_bytes,
            "log_size_after_bytes": log.size_bytes - size_bytes,
            "largest_timestamp_ms": max(segment.largest_timestamp_ms for segment in oldest),
        }


Predicate = Callable[[RetentionSegment, RetentionSegment | None], bool]
"""Whether a rule wants a segment gone, given the one behind it."""


def is_internal_topic(topic: str) -> bool:
    """Return True if the topic is one of Kafka's internal topics."""
    return topic in _INTERNAL_TOPICS


def is_tiered(topic: str, config: LogConfig) -> bool:
    """Return True if a log's segments go to the tier (log-format 7.2)."""
    return config.remote_storage_enable and not config.is_compacted and topic not in _UNTIERED_TOPICS


def plan_deletion(log: LogFacts, predicate: Predicate, *, waits_for_copy: bool) -> DeletionPlan:
    """Walk the segments from the oldest one and stop at the first that has to stay (log-format 7.1).

    Args:
        log: the log.
        predicate: the rule; asked in order, once for each segment below the high watermark.
        waits_for_copy: a segment stays until it is in the tier.
    """
    rolls_active = False
    for index, segment in enumerate(log.segments):
        following = log.segments[index + 1] if index + 1 < len(log.segments) else None
        upper_bound = following.base_offset if following else log.log_end_offset
        if log.high_watermark < upper_bound or not predicate(segment, following):
            return DeletionPlan(index, rolls_active)
        is_last_and_empty = following is None and not segment.size_bytes
        rolls_active = log.is_tiered and following is None and not is_last_and_empty
        if is_last_and_empty or (waits_for_copy and not _is_dispensable(log, following, upper_bound)):
            return DeletionPlan(index, rolls_active)
    return DeletionPlan(len(log.segments), rolls_active)


def log_start_breached(log: LogFacts) -> Predicate:
    """Return the rule for segments that lie below the log start as a whole."""
    start = log.local_log_start_offset if log.is_tiered else log.log_start_offset
    return lambda _, following: following is not None and following.base_offset <= start


def size_breached(log: LogFacts, limit_bytes: int) -> Predicate:
    """Return the rule that keeps at least ``limit_bytes``; -1 is no limit. The rule counts: one walk only."""
    excess = log.size_bytes - limit_bytes
    if limit_bytes < 0 or excess < 0:
        return lambda _segment, _following: False

    def fits_excess(segment: RetentionSegment, _: RetentionSegment | None) -> bool:
        nonlocal excess
        if excess < segment.size_bytes:
            return False
        excess -= segment.size_bytes
        return True

    return fits_excess


def time_breached(limit_ms: int, *, now_ms: int) -> Predicate:
    """Return the rule for segments whose newest record is older than ``limit_ms``; -1 is no limit."""
    return lambda segment, _: 0 <= limit_ms < now_ms - segment.largest_timestamp_ms


def retention_limits(config: LogConfig, *, waits_for_copy: bool) -> tuple[int, int]:
    """Return milliseconds and bytes that the local log keeps; a log with a tier may have local limits of its own."""
    if not waits_for_copy:
        return config.retention_ms, config.retention_bytes
    local_ms, local_bytes = config.local_retention_ms, config.local_retention_bytes
    return (
        config.retention_ms if local_ms == FROM_TOTAL else local_ms,
        config.retention_bytes if local_bytes == FROM_TOTAL else local_bytes,
    )


def breaches(config: LogConfig, *, waits_for_copy: bool, log_start_offset: int) -> tuple[Breach, Breach, Breach]:
    """Return the rules by which segments may go, with their limits: log start, size and time."""
    limit_ms, limit_bytes = retention_limits(config, waits_for_copy=waits_for_copy)
    size_is_local = waits_for_copy and config.local_retention_bytes != FROM_TOTAL
    time_is_local = waits_for_copy and config.local_retention_ms != FROM_TOTAL
    return (
        Breach("log start offset", "", log_start_offset),
        Breach("retention size", "local.retention.bytes" if size_is_local else "retention.bytes", limit_bytes),
        Breach("retention time", "local.retention.ms" if time_is_local else "retention.ms", limit_ms),
    )


def _is_dispensable(log: LogFacts, following: RetentionSegment | None, upper_bound: int) -> bool:
    """Return True if a segment is in the tier, or lies below the log start, so that no consumer may read it."""
    in_tier = 0 < upper_bound <= log.highest_remote_offset + 1
    return in_tier or (following is not None and log.log_start_offset >= following.base_offset)
