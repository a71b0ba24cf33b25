"""Groups of neighbouring segments that become one: pure (log-format 9.3; Kafka: Cleaner.groupSegmentsBySize)."""

from collections.abc import Sequence

from tierd.log.cleaning.cleanable_log import SegmentToClean
from tierd.log.records.log_config import MAX_INT, LogConfig

SegmentGroup = tuple[SegmentToClean, ...]


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
