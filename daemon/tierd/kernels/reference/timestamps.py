"""Which span of time records cover, in plain Python."""

from tierd.kernels.columns import RecordFault
from tierd.kernels.reference.varints import FaultError, read_varint, read_varlong, wrap
from tierd.model import TimestampRange


def timestamp_range(
    payload: bytes | memoryview, count: int, *, base_timestamp_ms: int = 0
) -> TimestampRange | RecordFault | None:
    """Find the smallest and the largest timestamp of the records of magic 2 that fill ``payload`` (log-format 2.3).

    Only the length of a record and its timestamp are looked at, as in ``select_records``.

    Args:
        payload: records, uncompressed; below 2 GiB.
        count: how many.
        base_timestamp_ms: what the timestamp deltas refer to; sums wrap as in Java.

    Returns:
        None when there is no record; why the payload holds no ``count`` records.
    """
    if count < 0:
        return RecordFault.NEGATIVE_COUNT
    at, smallest, largest = 0, (1 << 63) - 1, -(1 << 63)
    try:
        for _ in range(count):
            at, timestamp_ms = _timestamp(payload, at, base_timestamp_ms)
            smallest, largest = min(smallest, timestamp_ms), max(largest, timestamp_ms)
    except IndexError:
        return RecordFault.BYTES_END
    except FaultError as error:
        return error.fault
    if at != len(payload):
        return RecordFault.BYTES_LEFT
    return TimestampRange(smallest, largest) if count else None


def _timestamp(payload: bytes | memoryview, at: int, base_timestamp_ms: int) -> tuple[int, int]:
    """Where the record at ``at`` ends, and its timestamp."""
    length, body = read_varint(payload, at)
    end = body + length
    if length < 0 or end > len(payload):
        raise FaultError(RecordFault.RECORD_SIZE)
    delta_ms, rest = read_varlong(payload, body + 1)
    if rest > end:
        raise FaultError(RecordFault.NOT_FILLED)
    return end, wrap(base_timestamp_ms + delta_ms)
