"""Targets: kernels that process decoded records; reference and compiled one agree and never read beyond the bytes."""

from contextlib import suppress
from types import ModuleType

import numpy as np

from tests.fuzz.target import Target
from tests.log.encoded_record import encode_record
from tierd.kernels import RecordFault, compiled, reference
from tierd.log.records.record import RecordError, iter_raw_records

_SECRET = bytes(range(16))
_COUNTS = np.dtype(">i4")
_SHIFTS_MS = (0, 1, -(2**40))


def _results(kernels: ModuleType, payload: bytes, count: int) -> list[object]:
    """Return all results of ``kernels`` for ``count`` records, comparable."""
    found = kernels.decode_records(payload, count, must_fill=False)
    keep = np.arange(min(max(count, 0), len(payload) + 1)) % 3 > 0
    said: list[object] = [
        kernels.select_records(payload, keep.size, keep, timestamp_shift_ms=shift_ms) for shift_ms in _SHIFTS_MS
    ]
    hashes = kernels.hash_keys(payload, found.key_start, found.key_size, _SECRET)
    said += [half.tolist() for half in (*hashes, *kernels.latest_per_key(*hashes, found.offset))]
    for starts, sizes in ((found.key_start, found.key_size), (found.value_start, found.value_size)):
        said += [column.tolist() for column in kernels.gather(payload, starts, sizes)]
    return said + _headers(kernels, payload, found.headers_start, found.header_count)


def _headers(kernels: ModuleType, payload: bytes, starts: memoryview, counts: memoryview) -> list[object]:
    found = kernels.gather_headers(payload, starts, counts)
    if isinstance(found, RecordFault):
        return [found]
    return [found.offsets.tolist(), *(column.tolist() for side in (found.keys, found.values) for column in side)]


def _kernels(data: bytes) -> None:
    """Decode records as in the target ``records``, then headers at positions that the bytes themselves give."""
    count, payload = int.from_bytes(data[:4], "big", signed=True), data[4:]
    assert _results(compiled, payload, count) == _results(reference, payload, count)
    with suppress(RecordError):
        list(iter_raw_records(payload, count))  # raises where the bytes are no records
        assert compiled.select_records(payload, count, np.ones(count, dtype=bool)) == payload
    numbers = np.frombuffer(payload[: len(payload) & ~7], dtype=_COUNTS).astype(np.int32).reshape(2, -1)
    for starts, counts in ((numbers[0] % 64, numbers[1] & 3), numbers):
        assert _headers(compiled, payload, starts.data, counts.data) == _headers(
            reference, payload, starts.data, counts.data
        )


def _seeds() -> list[bytes]:
    records = [
        encode_record(0, 0, b"key", b"value"),
        encode_record(1, -5, None, None, [("name", b"\0\0\0\1"), ("größe", None)]),
        encode_record(2**40, 2, b"key", b"x" * 200),
    ]
    counted = [len(records).to_bytes(4, "big") + b"".join(records), b"\0\0\0\1" + records[1]]
    return [*counted, b"\xff" * 4 + records[0], counted[0][:-9], b""]


TARGETS = (Target("kernels", _kernels, _seeds),)
