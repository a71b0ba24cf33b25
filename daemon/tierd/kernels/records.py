"""Fields of records, found with the twin that pays."""

from tierd.kernels.choice import CHOICE
from tierd.kernels.columns import SMALLEST_RECORD_BYTES, STEP_RECORDS, BatchColumns, Columns


def decode_records(
    payload: bytes | memoryview,
    count: int,
    *,
    base_offset: int = 0,
    base_timestamp_ms: int = 0,
    append_time_ms: int | None = None,
    start: int = 0,
    must_fill: bool = True,
) -> Columns:
    """Find the fields of ``count`` records of magic 2 with the twin that pays; see ``reference.decode_records``."""
    bounded = min(count, len(payload) // SMALLEST_RECORD_BYTES)  # a damaged header's count alone does not pay
    return CHOICE.for_records(bounded).decode_records(
        payload,
        count,
        base_offset=base_offset,
        base_timestamp_ms=base_timestamp_ms,
        append_time_ms=append_time_ms,
        start=start,
        must_fill=must_fill,
    )


def decode_batches(data: bytes | memoryview, *, start: int = 0, at_most: int = STEP_RECORDS) -> BatchColumns:
    """Find the fields of the records of many batches with the twin that pays; see ``reference.decode_batches``."""
    columns = CHOICE.for_records(0).decode_batches(data, start=start, at_most=at_most)
    CHOICE.for_records(len(columns.records))
    return columns
