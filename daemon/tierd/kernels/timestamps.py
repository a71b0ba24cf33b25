"""Which span of time records cover, with whichever twin pays."""

from tierd.kernels.choice import CHOICE
from tierd.kernels.columns import SMALLEST_RECORD_BYTES, RecordFault
from tierd.model import TimestampRange


def timestamp_range(
    payload: bytes | memoryview, count: int, *, base_timestamp_ms: int = 0
) -> TimestampRange | RecordFault | None:
    """Find the smallest and the largest timestamp of records; see ``reference.timestamp_range``."""
    bounded = min(count, len(payload) // SMALLEST_RECORD_BYTES)
    return CHOICE.for_records(bounded).timestamp_range(payload, count, base_timestamp_ms=base_timestamp_ms)
