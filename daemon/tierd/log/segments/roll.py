"""When a segment is finished and the next one begins (log-format 5.1): a pure decision."""

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
    """Whether a set of batches must go to a new segment (Kafka: LogSegment.shouldRoll).

    Args:
        segment_size_bytes: of the active segment.
        max_segment_bytes: ``segment.bytes``.
        append_size_bytes: of the set.
        waited_ms: how old the segment is, by ``time_waited_ms``.
        max_segment_ms: how old it may become, before jitter.
        jitter_ms: how much earlier than the others this segment rolls.
        is_index_full: either index.
        relative_offset: from the segment's base to the last offset of the set.
    """
    return (
        segment_size_bytes > max_segment_bytes - append_size_bytes
        or (segment_size_bytes > 0 and waited_ms > max_segment_ms - jitter_ms)
        or is_index_full
        or not 0 <= relative_offset <= MAX_INT
    )


def time_waited_ms(*, first_timestamp_ms: int | None, created_ms: int, now_ms: int, max_timestamp_ms: int) -> int:
    """How old a segment is: in message time once its first batch has a timestamp, else by the clock.

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
    """How much earlier than the others a segment rolls; drawn each time one is opened."""
    limit = min(segment_jitter_ms, segment_ms)
    return abs(random_int) % limit if limit else 0
