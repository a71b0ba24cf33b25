"""Decision to finish a segment and begin the next one (log-format 5.1): pure."""

from tierd.log.records.log_config import MAX_INT


def should_roll(
    *,
    segment_size_bytes: int,
    max_segment_bytes: int,
    append_size_bytes: int,
    waited_ms: int,
    max_segment_ms: int,
    jitter_ms: int,
    is_index_full: bool,
    relative_offset: int,
) -> bool:
    """Return True if a set of batches must go to a new segment (Kafka: LogSegment.shouldRoll).

    Args:
        segment_size_bytes: size of the active segment.
        max_segment_bytes: ``segment.bytes``.
        append_size_bytes: size of the set.
        waited_ms: age of the segment, from ``time_waited_ms``.
        max_segment_ms: maximum age of a segment, before jitter.
        jitter_ms: time that is subtracted from the maximum age of this segment.
        is_index_full: True if the offset index or the time index is full.
        relative_offset: distance from the segment's base offset to the last offset of the set.
    """
    return (
        segment_size_bytes > max_segment_bytes - append_size_bytes
        or (segment_size_bytes > 0 and waited_ms > max_segment_ms - jitter_ms)
        or is_index_full
        or not 0 <= relative_offset <= MAX_INT
    )


def time_waited_ms(*, first_timestamp_ms: int | None, created_ms: int, now_ms: int, max_timestamp_ms: int) -> int:
    """Return the age of a segment: in message time once its first batch has a timestamp, else by the clock.

    Args:
        first_timestamp_ms: of the first batch, -1 when it has none, None when there is no batch.
        created_ms: when the segment was made, or opened.
        now_ms: wall clock.
        max_timestamp_ms: of the set that is to be appended.
    """
    if first_timestamp_ms is not None and first_timestamp_ms >= 0:
        return max_timestamp_ms - first_timestamp_ms
    return now_ms - created_ms


def draw_jitter_ms(*, segment_jitter_ms: int, segment_ms: int, random_int: int) -> int:
    """Return a random time to subtract from a segment's maximum age; drawn each time a segment is opened."""
    limit = min(segment_jitter_ms, segment_ms)
    return abs(random_int) % limit if limit else 0
