"""Tier that readers are measured on, and the loops of Python that they are compared with."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

from aiokafka.record import default_records, memory_records  # type: ignore[import-untyped]  # has no stubs

from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter
from tests.scenarios.command import run_tierd
from tierd.kernels import crc32c
from tierd.log import NewRecord, encode_batch

VALUE_BYTES = 100
RECORDS = 128  # of a batch
BATCH_MS = 1_000
_SEGMENTS = 8
_TEMPLATES = 16


def filled_tier(root: Path, size_bytes: int, *, value_bytes: int = VALUE_BYTES) -> tuple[Path, int]:
    """Write a partition, copy it, and return the configuration and the number of records in the tier."""
    writer = LogDirWriter(root / "kafka")
    partition = writer.add_partition("bench")
    templates = [_template(value_bytes) for _ in range(_TEMPLATES)]
    batches = size_bytes // _SEGMENTS // len(templates[0])
    time_ms = FIRST_TIMESTAMP_MS
    for _ in range(_SEGMENTS):
        for n in range(batches):
            partition.append_batch(_at_time(templates[n % _TEMPLATES], time_ms), RECORDS)
            time_ms += BATCH_MS
        partition.roll()
    partition.append([b"active"])
    writer.write_checkpoints()
    config_file = root / "tierd.yaml"
    settings = {
        "state_dir": str(root / "state"),
        "log_dirs": [{"path": str(root / "kafka"), "owner": "kafka"}],
        "remote": {"backend": "filesystem", "filesystem": {"path": str(root / "store")}},
    }
    config_file.write_text(json.dumps(settings))
    copied = run_tierd("copy", "--once", "--config", str(config_file), deadline_s=600)
    assert copied.exit_code == 0, copied.output
    return config_file, _SEGMENTS * batches * RECORDS


def _template(value_bytes: int) -> bytes:
    rows = [NewRecord(b"key-%012d" % n, os.urandom(value_bytes), FIRST_TIMESTAMP_MS + n) for n in range(RECORDS)]
    return encode_batch(rows)


def _at_time(batch: bytes, time_ms: int) -> bytes:
    """Return the same batch with another time: times of records are relative to that of the batch."""
    moved = bytearray(batch)
    struct.pack_into(">qq", moved, 27, time_ms, time_ms + RECORDS - 1)
    struct.pack_into(">I", moved, 17, crc32c(memoryview(moved)[21:]))
    return bytes(moved)


def aiokafka_in_python(logs: list[Path], rows: int) -> None:
    """Decode as on a machine without the compiled extension."""
    with patch.object(memory_records, "DefaultRecordBatch", default_records._DefaultRecordBatchPy):
        _aiokafka(memory_records._MemoryRecordsPy, logs, rows)


def aiokafka_compiled(logs: list[Path], rows: int) -> None:
    """Decode with the compiled extension."""
    _aiokafka(memory_records.MemoryRecords, logs, rows)


def _aiokafka(decoder: Callable[[bytes], Any], logs: list[Path], rows: int) -> None:
    found = 0
    for log in logs:
        batches = decoder(log.read_bytes())
        while batches.has_next():
            batch = batches.next_batch()
            assert batch.validate_crc()
            for record in batch:
                _ = (record.key, record.value, record.offset, record.timestamp)
                found += 1
    assert found == rows


def per_second(scans: dict[str, Callable[[], None]], rows: int, rounds: int) -> dict[str, float]:
    """Return rows a second of each; they take turns after a first one that does not count, and medians count."""
    seconds: dict[str, list[float]] = {name: [] for name in scans}
    for each in range(rounds + 1):
        for name, scan in scans.items():
            begun_s = perf_counter()
            scan()
            if each:
                seconds[name].append(perf_counter() - begun_s)
    return {name: rows / median(found) for name, found in seconds.items()}
