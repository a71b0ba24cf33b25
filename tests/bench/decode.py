"""Records decoded per second, against the reader of aiokafka that is compiled from Cython.

The two readers differ: tierd finds every field of many records and copies no bytes, aiokafka makes an object of each
record, with key and value copied. Other figures have the CRC of every batch checked, by both or by tierd alone, and
tierd with a copy of every value.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median

from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]  # has no stubs

from tests.bench.report import Figure
from tests.log.log_columns import iter_log_columns
from tierd.kernels import compile_kernels
from tierd.log.records.batch_builder import NewRecord, encode_batch

KIB = 1 << 10
MIB = 1 << 20
_KEY = b"key-0001"
_NOW_MS = 1_700_000_000_000
MEASURED_S = 0.2

Reader = Callable[[bytes], int]


def bench_decode(*, data_bytes: int, rounds: int) -> list[Figure]:
    """Decode records of 1 KB and of 100 B, not compressed, in batches of 16 KiB (a producer's default) and of 1 MiB."""
    assert MemoryRecords.__module__.startswith("aiokafka.record._crecords"), "aiokafka without its compiled reader"
    compile_kernels()
    figures: list[Figure] = []
    for record_bytes in (1000, 100):
        for batch_bytes in (16 * KIB, MIB):
            data = records(record_bytes=record_bytes, batch_bytes=batch_bytes, data_bytes=data_bytes)
            case = f"decode: {record_bytes} B in batches of {batch_bytes // KIB} KiB"
            figures += _figures(case, data, rounds=rounds)
    return figures


def records(*, record_bytes: int, batch_bytes: int, data_bytes: int) -> bytes:
    """Return a piece of a log of about ``data_bytes``."""
    value = bytes(range(256)) * (record_bytes // 256 + 1)
    record_count = max(1, batch_bytes // (record_bytes + 10))
    rows = [NewRecord(_KEY, value[: record_bytes - len(_KEY)], _NOW_MS + n) for n in range(record_count)]
    pieces, offset = [], 0
    while offset * record_bytes < data_bytes:
        pieces.append(encode_batch(rows, base_offset=offset))
        offset += record_count
    return b"".join(pieces)


def _figures(case: str, data: bytes, *, rounds: int) -> list[Figure]:
    ours, checked, copied, theirs, theirs_checked = _per_second(
        [_columns, _checked_columns, _values, _aiokafka, _aiokafka_checked], data, rounds=rounds
    )
    return [
        Figure(f"{case}, tierd", ours / 1e6, "M/s"),
        Figure(f"{case}, aiokafka", theirs / 1e6, "M/s"),
        Figure(f"{case}, relative", ours / theirs, "ratio", ">= 3"),
        Figure(f"{case}, relative, CRC checked by both", checked / theirs_checked, "ratio", ">= 3"),
        Figure(f"{case}, relative, CRC checked by tierd alone", checked / theirs, "ratio"),
        Figure(f"{case}, relative, every value copied", copied / theirs, "ratio"),
    ]


def _per_second(readers: Sequence[Reader], data: bytes, *, rounds: int) -> list[float]:
    """Return records per second of each; they take turns, and medians count."""
    found: list[list[float]] = [[] for _ in readers]
    for _ in range(rounds):
        for rates, reader in zip(found, readers, strict=True):
            rates.append(_rate(reader, data))
    return [median(rates) for rates in found]


def _rate(reader: Reader, data: bytes) -> float:
    """Return records per CPU second, over a run long enough for a busy machine."""
    count, begun_s = 0, time.process_time()
    while (spent_s := time.process_time() - begun_s) < MEASURED_S:
        count += reader(data)
    return count / spent_s


def _columns(data: bytes) -> int:
    return sum(len(columns) for columns in iter_log_columns(data, name="bench", check_crc=False))


def _checked_columns(data: bytes) -> int:
    return sum(len(columns) for columns in iter_log_columns(data, name="bench"))


def _values(data: bytes) -> int:
    pieces = iter_log_columns(data, name="bench", check_crc=False, step_records=1000)
    return sum(len(columns.values()) for columns in pieces)


def _aiokafka(data: bytes) -> int:
    batches, count = MemoryRecords(data), 0
    while batches.has_next():
        for _ in batches.next_batch():
            count += 1
    return count


def _aiokafka_checked(data: bytes) -> int:
    batches, count = MemoryRecords(data), 0
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        for _ in batch:
            count += 1
    return count
