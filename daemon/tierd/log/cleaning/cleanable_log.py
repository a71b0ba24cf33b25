"""Plan of a cleaning round, pure: its end, the dirty part, and groups of segments (log-format 9.1 and 9.3).

Kafka: LogCleanerManager, Cleaner.groupSegmentsBySize.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tierd.log.records.log_config import MAX_INT, LogConfig
from tierd.log.segments.segment_ranges import segments_between, segments_from


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToClean:
    """Facts about a segment from which the cleaner plans.

    Attributes:
        offset_index_bytes: size of the entries of the offset index.
        time_index_bytes: size of the entries of the time index.
        largest_timestamp_ms: of the records; for a segment without timestamps the modification time of its file.
        first_timestamp_ms: of the first batch; ``MAX_LONG`` without a timestamp.
    """

    base_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    largest_timestamp_ms: int
    first_timestamp_ms: int


SegmentGroup = tuple[SegmentToClean, ...]
"""Neighbouring segments that become one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableLog:
    """Dirty part of a log, and the end up to which it may be cleaned.

    Attributes:
        first_dirty_offset: everything below this offset was cleaned before.
        first_uncleanable_offset: exclusive end of the round: the base offset of a segment.
        clean_bytes: size of the segments that begin below ``first_dirty_offset``.
        cleanable_bytes: size of the segments from ``first_dirty_offset`` to ``first_uncleanable_offset``; a segment
            with ``first_dirty_offset`` in its middle counts in both.
        is_overdue: a dirty segment is older than ``max.compaction.lag.ms``.
        is_checkpoint_wrong: the checkpoint lies outside of the log, and has to be written anew.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    is_checkpoint_wrong: bool = False

    @property
    def dirty_ratio(self) -> float:
        """Share of the bytes that is dirty; 0 where there is nothing at all."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Return True if the log is to be cleaned now: above the dirty ratio, or overdue with anything to clean."""
        return self.dirty_ratio > config.min_cleanable_dirty_ratio or (self.is_overdue and self.cleanable_bytes > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToMeasure:
    """Facts about a log from which the cleaner computes the dirty part.

    Attributes:
        segments: all of them, ascending; the last one is active and is never cleaned.
        checkpointed_offset: the entry of ``cleaner-offset-checkpoint``; None without an entry.
    """

    segments: Sequence[SegmentToClean]
    checkpointed_offset: int | None
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int


def measure(log: LogToMeasure, config: LogConfig, *, now_ms: int) -> CleanableLog:
    """Measure a log as a broker does, from its segments and its checkpoint."""
    active_base, rolled = log.segments[-1].base_offset, log.segments[:-1]
    first_dirty, is_wrong = _first_dirty(log)
    dirty = segments_from(rolled, first_dirty) if first_dirty < active_base else ()
    limit = min(log.last_stable_offset, active_base)
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        limit = min(limit, next((s.base_offset for s in dirty if s.largest_timestamp_ms > youngest_ms), limit))
    limit = max(limit, first_dirty)
    uncleanable = segments_from(rolled, limit) if limit < active_base else ()
    first_uncleanable = uncleanable[0].base_offset if uncleanable else active_base
    to_clean = segments_between(log.segments, min(first_dirty, first_uncleanable), first_uncleanable)
    oldest_ms = min((s.first_timestamp_ms for s in dirty if s.first_timestamp_ms > 0), default=now_ms)
    return CleanableLog(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(s.size_bytes for s in log.segments if s.base_offset < first_dirty),
        cleanable_bytes=sum(s.size_bytes for s in to_clean),
        is_overdue=oldest_ms < now_ms - config.max_compaction_lag_ms,
        is_checkpoint_wrong=is_wrong,
    )


def _first_dirty(log: LogToMeasure) -> tuple[int, bool]:
    """Return the first dirty offset, and if the checkpoint has to be written anew."""
    checkpointed = log.checkpointed_offset
    if checkpointed is None:
        return log.log_start_offset, False
    if not log.log_start_offset <= checkpointed <= log.log_end_offset:
        return log.log_start_offset, True
    return checkpointed, False


def group_segments(
    segments: Sequence[SegmentToClean], config: LogConfig, *, first_uncleanable_offset: int
) -> list[SegmentGroup]:
    """Put neighbours together, as many as fit one segment and its indexes.

    Args:
        segments: all that the round cleans, ascending.
        config: of the log; its ``segment.bytes`` and ``segment.index.bytes`` are the limits.
        first_uncleanable_offset: where the round ends, which bounds the offsets of the last segment.
    """
    groups: list[list[SegmentToClean]] = []
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else first_uncleanable_offset
        if groups and _fits(groups[-1], segment, config, last_offset=following - 1):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return [tuple(group) for group in groups]


def _fits(group: list[SegmentToClean], segment: SegmentToClean, config: LogConfig, *, last_offset: int) -> bool:
    together = [*group, segment]
    return (
        sum(one.size_bytes for one in together) <= config.segment_bytes
        and sum(one.offset_index_bytes for one in together) <= config.segment_index_bytes
        and sum(one.time_index_bytes for one in together) <= config.segment_index_bytes
        and (not segment.size_bytes or last_offset - group[0].base_offset <= MAX_INT)
    )
