"""Rows that Spark scans a second through the data source, and the cost of a time range.

References are the same rows in the same run: by the decoder of aiokafka in a plain loop of Python over the stored logs,
in Python and with its compiled extension, and by Spark from Parquet. Spark has warmed up; its tasks drop the rows.
"""

import json
import os
import struct
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

from aiokafka.record import default_records, memory_records  # type: ignore[import-untyped]  # has no stubs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, Filter, GreaterThanOrEqual, LessThan

from tests.bench.report import Figure
from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter
from tests.scenarios.command import run_tierd
from tierd.kernels import crc32c
from tierd.log import NewRecord, encode_batch
from tierd.pipeline import register
from tierd.pipeline.source.data_source import FilteringTieredLogDataSource
from tierd.pipeline.source.split_reading import read_split

_VALUE_BYTES = 100
_RECORDS = 128  # of a batch
_BATCH_MS = 1_000
_SEGMENTS = 8
_PLAIN = "aiokafka, plain Python"
_COMPILED = "aiokafka, compiled"
_TEMPLATES = 16
_COLUMNS = "key binary, value binary, offset long, timestamp timestamp"


def bench_spark_scan(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Scan a partition of about ``size_bytes``, and 1 % of its time."""
    config_file, rows = _filled(root, size_bytes)
    logs = sorted((root / "store").rglob("*.log"))
    figures = _pushdown(config_file, rows, stored_bytes=sum(log.stat().st_size for log in logs))
    with _session(root) as spark:
        options = {"config": str(config_file), "subscribe": "bench"}
        tier = spark.read.format("tierd").options(**options).schema(_COLUMNS)
        everything = spark.read.format("tierd").options(**options)
        tier.load().write.parquet(str(root / "parquet"))
        scans: dict[str, Callable[[], None]] = {
            "tierd": lambda: _scan(tier.load()),
            "tierd, all columns": lambda: _scan(everything.load()),
            "parquet": lambda: _scan(spark.read.parquet(str(root / "parquet"))),
            _PLAIN: lambda: _aiokafka_in_python(logs, rows),
            _COMPILED: lambda: _aiokafka(memory_records.MemoryRecords, logs, rows),
        }
        rates = _per_second(scans, rows, rounds)
    return [
        *(Figure(f"spark scan: {name}", rate / 1e6, "M rows/s") for name, rate in rates.items()),
        Figure("spark scan: relative to aiokafka in plain Python", rates["tierd"] / rates[_PLAIN], "ratio", ">= 3"),
        Figure("spark scan: relative to aiokafka compiled", rates["tierd"] / rates[_COMPILED], "ratio"),
        Figure("spark scan: relative to Parquet", rates["tierd"] / rates["parquet"], "ratio"),
        *figures,
    ]


def _filled(root: Path, size_bytes: int) -> tuple[Path, int]:
    """Write a partition, copy it, and return the configuration and the number of records in the tier."""
    writer = LogDirWriter(root / "kafka")
    partition = writer.add_partition("bench")
    templates = [_template() for _ in range(_TEMPLATES)]
    batches = size_bytes // _SEGMENTS // len(templates[0])
    time_ms = FIRST_TIMESTAMP_MS
    for _ in range(_SEGMENTS):
        for n in range(batches):
            partition.append_batch(_at_time(templates[n % _TEMPLATES], time_ms), _RECORDS)
            time_ms += _BATCH_MS
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
    return config_file, _SEGMENTS * batches * _RECORDS


def _template() -> bytes:
    rows = [NewRecord(b"key-%012d" % n, os.urandom(_VALUE_BYTES), FIRST_TIMESTAMP_MS + n) for n in range(_RECORDS)]
    return encode_batch(rows)


def _at_time(batch: bytes, time_ms: int) -> bytes:
    """Return the same batch with another time: times of records are relative to that of the batch."""
    moved = bytearray(batch)
    struct.pack_into(">qq", moved, 27, time_ms, time_ms + _RECORDS - 1)
    struct.pack_into(">I", moved, 17, crc32c(memoryview(moved)[21:]))
    return bytes(moved)


def _pushdown(config_file: Path, rows: int, *, stored_bytes: int) -> list[Figure]:
    """Return the bytes that a query for 1 % of the time fetches, with its planning, and all stored bytes.

    The time range is given as options, which become offsets, and as a filter, which only a Spark pushes that makes a
    reader for each scan. A copy does not record the times of its chunks, so a filter has to read on behind the range,
    except in segments that a run of the job has made.
    """
    span_ms = rows // _RECORDS * _BATCH_MS
    start_ms = FIRST_TIMESTAMP_MS + span_ms * 3 // 10
    end_ms = start_ms + span_ms // 100
    moments = [datetime.fromtimestamp(at / 1000, UTC) for at in (start_ms, end_ms)]
    options = {"startingTimestamp": str(start_ms), "endingTimestamp": str(end_ms)}
    begins, ends = GreaterThanOrEqual(("timestamp",), moments[0]), LessThan(("timestamp",), moments[1])
    found = {
        "as options": _fetched(config_file, rows // 100, (), options),
        "as a filter": _fetched(config_file, rows // 100, (begins, ends), {}),
    }
    name = "spark scan: bytes fetched for 1 % of the time"
    goals = {"as options": "<= 3", "as a filter": ""}
    return [Figure(f"{name}, {how}", 100 * size / stored_bytes, "%", goals[how]) for how, size in found.items()]


def _fetched(config_file: Path, rows: int, filters: Sequence[Filter], options: Mapping[str, str]) -> int:
    source = FilteringTieredLogDataSource(
        CaseInsensitiveDict({"config": str(config_file), "subscribe": "bench", **options})
    )
    reader = source.reader(source.schema())
    assert not list(reader.pushFilters(list(filters)))
    with reader.access.open() as tier:
        splits = reader.plan(tier)
        found = sum(b.num_rows for split in splits for b in read_split(tier, split, reader.bounds, reader.columns))
        assert abs(found - rows) <= _RECORDS, f"{found} rows are not the {rows} of the range"
        return tier.fetched_bytes


@contextmanager
def _session(root: Path) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.local.dir", str(root / "local"))
            .config("spark.sql.warehouse.dir", str(root / "warehouse"))
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        try:
            yield spark
        finally:
            spark.stop()


def _scan(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _aiokafka_in_python(logs: list[Path], rows: int) -> None:
    """Decode as on a machine without the compiled extension."""
    with patch.object(memory_records, "DefaultRecordBatch", default_records._DefaultRecordBatchPy):
        _aiokafka(memory_records._MemoryRecordsPy, logs, rows)


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


def _per_second(scans: dict[str, Callable[[], None]], rows: int, rounds: int) -> dict[str, float]:
    """Return rows a second of each; they take turns after a first one that does not count, and medians count."""
    seconds: dict[str, list[float]] = {name: [] for name in scans}
    for each in range(rounds + 1):
        for name, scan in scans.items():
            begun_s = perf_counter()
            scan()
            if each:
                seconds[name].append(perf_counter() - begun_s)
    return {name: rows / median(found) for name, found in seconds.items()}
