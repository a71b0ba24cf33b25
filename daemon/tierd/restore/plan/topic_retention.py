"""Segments that a broker deletes soon after its start, since the topic's retention is over (trap 6). Decisions only."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from tierd.model import RemoteLogSegmentMetadata

_UNLIMITED: Final = -1


class TopicRetention(NamedTuple):
    """Retention of a topic in Kafka; -1 is no limit. A topic that is only compacted has no limit of either kind."""

    retention_ms: int = _UNLIMITED
    retention_bytes: int = _UNLIMITED


KAFKA_DEFAULT: Final = TopicRetention(retention_ms=7 * 86_400_000)
"""Retention of a topic and a broker without settings."""


def expired_first(segments: Sequence[RemoteLogSegmentMetadata], retention: TopicRetention, *, now_ms: int) -> int:
    """Return how many of the first ``segments``, ascending, a broker deletes (Kafka: UnifiedLog.deleteOldSegments).

    A segment without records takes the time of its file, which is new, and ends the deletion by time.
    """
    return max(_expired_by_time(segments, retention, now_ms), _expired_by_size(segments, retention))


def _expired_by_time(segments: Sequence[RemoteLogSegmentMetadata], retention: TopicRetention, now_ms: int) -> int:
    if retention.retention_ms < 0:
        return 0
    before_ms = now_ms - retention.retention_ms
    return sum(1 for _ in takewhile(lambda m: 0 <= m.max_timestamp_ms < before_ms, segments))


def _expired_by_size(segments: Sequence[RemoteLogSegmentMetadata], retention: TopicRetention) -> int:
    if retention.retention_bytes < 0:
        return 0
    excess, count = sum(m.size_bytes for m in segments) - retention.retention_bytes, 0
    for metadata in segments:
        excess -= metadata.size_bytes
        if excess < 0:
            break
        count += 1
    return count
