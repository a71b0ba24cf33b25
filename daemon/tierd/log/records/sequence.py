"""Sequence numbers of idempotent producers: 0 to the largest int, then 0 again (log-format 2.2)."""

MAX_SEQUENCE = (1 << 31) - 1


def increment_sequence(sequence: int, count: int) -> int:
    """Return the sequence number ``count`` after ``sequence`` (Kafka: DefaultRecordBatch.incrementSequence)."""
    return (sequence + count) & MAX_SEQUENCE


def decrement_sequence(sequence: int, count: int) -> int:
    """Return the sequence number ``count`` before ``sequence`` (Kafka: DefaultRecordBatch.decrementSequence)."""
    return (sequence - count) & MAX_SEQUENCE
