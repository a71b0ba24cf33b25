"""Part of a partition worth compacting (log-format 9.1; Kafka: LogToClean, LogCleanerManager.cleanableOffsets)."""

from dataclasses import dataclass

from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.planning.chain import Chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """Dirty part of a chain, and the end of what may be compacted.

    Attributes:
        first_dirty_offset: below it everything was compacted before.
        first_uncleanable_offset: exclusive end of the round: a segment's start, or the end of the chain.
        clean_bytes: bytes of segments that begin below ``first_dirty_offset``.
        cleanable_bytes: bytes of segments from ``first_dirty_offset`` to ``first_uncleanable_offset``; a segment that
            has ``first_dirty_offset`` inside counts in both.
        is_overdue: True if a dirty segment may hold a record older than ``max_compaction_lag``.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """Return the dirty share of the bytes; 0 if there are no bytes."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        """Return True if the dirty share is above ``min_ratio``, or an overdue chain has cleanable bytes."""
        return self.ratio > min_ratio or (self.is_overdue and self.cleanable_bytes > 0)


def cleanable_of(
    chain: Chain,
    *,
    compacted_to: int | None,
    log_end_offset: int,
    last_stable_offset: int,
    min_compaction_lag_ms: int,
    max_compaction_lag_ms: int | None,
    now_ms: int,
) -> Cleanable:
    """Measure a chain that is not empty.

    Args:
        chain: in place of Kafka's segments up to the active one: all of a tier is rolled.
        compacted_to: as the partition row has it. An offset outside the log is ignored, and all is dirty.
        log_end_offset: of the tier; exclusive. The chain may be only the beginning of the tier.
        last_stable_offset: of the tier; exclusive.
        min_compaction_lag_ms: age that a segment's newest record must have; 0 for no such rule.
        max_compaction_lag_ms: None for no such rule.
        now_ms: wall clock.
    """
    start = chain.segments[0].start_offset
    first_dirty = start
    if compacted_to is not None and start <= compacted_to <= log_end_offset:
        first_dirty = min(compacted_to, chain.end_offset)
    dirty = [metadata for metadata in chain.segments if metadata.end_offset >= first_dirty]
    limit = min(chain.end_offset, last_stable_offset)
    if min_compaction_lag_ms > 0:
        young = (m.start_offset for m in dirty if m.max_timestamp_ms > now_ms - min_compaction_lag_ms)
        limit = min(limit, next(young, limit))
    limit = max(limit, first_dirty)
    uncleanable = next((m.start_offset for m in chain.segments if m.end_offset >= limit), chain.end_offset)
    return Cleanable(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=uncleanable,
        clean_bytes=sum(m.size_bytes for m in chain.segments if m.start_offset < first_dirty),
        cleanable_bytes=sum(m.size_bytes for m in dirty if m.end_offset < uncleanable),
        is_overdue=max_compaction_lag_ms is not None
        and _is_older(chain.segments, len(chain.segments) - len(dirty), now_ms - max_compaction_lag_ms),
    )


def _is_older(segments: tuple[RemoteLogSegmentMetadata, ...], first_dirty: int, cutoff_ms: int) -> bool:
    """Return True if a dirty segment may hold a record older than ``cutoff_ms``.

    Kafka uses the time of each segment's first batch, which metadata does not have. The first batch is about as old as
    the newest record of the segment before it. So a compaction may be early by a pause of the topic between the two
    segments, but not late.
    """
    for place in range(first_dirty, len(segments)):
        newest = [m.max_timestamp_ms for m in segments[max(0, place - 1) : place + 1] if m.max_timestamp_ms > 0]
        if newest and min(newest) < cutoff_ms:
            return True
    return False
