"""Which span of time records cover, compiled."""

import numpy as np

from tierd.kernels.columns import RecordFault
from tierd.kernels.compiled.jit import BYTES, compile_for
from tierd.kernels.compiled.varints import read_varint
from tierd.kernels.reference.varints import wrap
from tierd.model import TimestampRange

_RECORD_SIZE = int(RecordFault.RECORD_SIZE)
_NOT_FILLED = int(RecordFault.NOT_FILLED)
_BYTES_LEFT = int(RecordFault.BYTES_LEFT)
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


@compile_for(f"UniTuple(int64, 3)({BYTES}, int64, int64)")
def _range(data: np.ndarray, count: int, base_ms: int) -> tuple[int, int, int]:
    """The fault, the smallest and the largest timestamp."""
    at, smallest, largest = 0, _LARGEST, _SMALLEST
    for _ in range(count):
        length, body = read_varint(data, at, 5)
        if body < 0:
            return -body, 0, 0
        at = body + length
        if length < 0 or at > data.size:
            return _RECORD_SIZE, 0, 0
        delta_ms, rest = read_varint(data, body + 1, 10)
        if rest < 0:
            return -rest, 0, 0
        if rest > at:
            return _NOT_FILLED, 0, 0
        timestamp_ms = base_ms + delta_ms
        smallest, largest = min(smallest, timestamp_ms), max(largest, timestamp_ms)
    return 0 if at == data.size else _BYTES_LEFT, smallest, largest


def timestamp_range(
    payload: bytes | memoryview, count: int, *, base_timestamp_ms: int = 0
) -> TimestampRange | RecordFault | None:
    """As ``reference.timestamp_range``."""
    if count < 0:
        return RecordFault.NEGATIVE_COUNT
    fault, smallest, largest = _range(np.frombuffer(payload, dtype=np.uint8), count, wrap(base_timestamp_ms))
    if fault:
        return RecordFault(fault)
    return TimestampRange(smallest, largest) if count else None
