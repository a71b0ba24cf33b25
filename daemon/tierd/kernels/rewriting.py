"""Records written anew, with the twin that pays."""

from tierd.kernels.arrays import Numbers
from tierd.kernels.choice import CHOICE
from tierd.kernels.columns import RecordFault


def select_records(
    payload: bytes | memoryview, count: int, keep: Numbers, *, timestamp_shift_ms: int = 0
) -> bytes | RecordFault:
    """Keep some of ``count`` records, bytes unchanged, or their timestamps moved; see ``reference.select_records``."""
    return CHOICE.for_records(len(keep)).select_records(payload, count, keep, timestamp_shift_ms=timestamp_shift_ms)


def rewrite_batches(
    data: bytes | memoryview,
    bounds: Numbers,
    first_record: Numbers,
    keep: Numbers,
    timestamps_ms: tuple[Numbers, Numbers],
) -> tuple[memoryview, memoryview] | RecordFault:
    """Keep some of the records of many batches; see ``reference.rewrite_batches``."""
    kernels = CHOICE.for_records(len(keep))
    return kernels.rewrite_batches(data, bounds, first_record, keep, timestamps_ms)
