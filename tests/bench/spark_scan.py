"""Rows that Spark scans a second through the data source, and the cost of a time range.

References are the same rows in the same run: by the decoder of aiokafka in a plain loop of Python over the stored logs,
in Python and with its compiled extension, and by Spark from Parquet. Batches that are ready are the limit: the rows of
a source in Python that does no work. Spark has warmed up; its tasks drop the rows.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, Filter, GreaterThanOrEqual, LessThan

from tests.bench.ready_batches import ReadyBatches
from tests.bench.report import Figure
from tests.bench.scanned_tier import (
    BATCH_MS,
    RECORDS,
    VALUE_BYTES,
    aiokafka_compiled,
    aiokafka_in_python,
    filled_tier,
    per_second,
)
from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS
from tierd.pipeline import register
from tierd.pipeline.source.data_source import FilteringTieredLogDataSource
from tierd.pipeline.source.split_reading import read_split

_PLAIN = "aiokafka, plain Python"
_COMPILED = "aiokafka, compiled"
_READY = "batches that are ready"
_READY_ROWS = 5_504  # of a batch: 43 batches of records, about as many as a decoding takes
_COLUMNS = "key binary, value binary, offset long, timestamp timestamp"


def bench_spark_scan(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Scan a partition of about ``size_bytes``, and 1 % of its time."""
    config_file, rows = filled_tier(root, size_bytes)
    logs = sorted((root / "store").rglob("*.log"))
    figures = _pushdown(config_file, rows, stored_bytes=sum(log.stat().st_size for log in logs))
    with _session(root) as spark:
        options = {"config": str(config_file), "subscribe": "bench"}
        tier = spark.read.format("tierd").options(**options).schema(_COLUMNS)
        everything = spark.read.format("tierd").options(**options)
        tasks = tier.load().rdd.getNumPartitions()
        ready = spark.read.format("ready").options(
            tasks=tasks, rows=_READY_ROWS, batches=rows // tasks // _READY_ROWS, value_bytes=VALUE_BYTES
        )
        tier.load().write.parquet(str(root / "parquet"))
        scans: dict[str, Callable[[], None]] = {
            "tierd": lambda: _scan(tier.load()),
            "tierd, all columns": lambda: _scan(everything.load()),
            _READY: lambda: _scan(ready.load()),
            "parquet": lambda: _scan(spark.read.parquet(str(root / "parquet"))),
            _PLAIN: lambda: aiokafka_in_python(logs, rows),
            _COMPILED: lambda: aiokafka_compiled(logs, rows),
        }
        rates = per_second(scans, rows, rounds)
    return [
        *(Figure(f"spark scan: {name}", rate / 1e6, "M rows/s") for name, rate in rates.items()),
        Figure("spark scan: relative to aiokafka in plain Python", rates["tierd"] / rates[_PLAIN], "ratio", ">= 3"),
        Figure("spark scan: relative to aiokafka compiled", rates["tierd"] / rates[_COMPILED], "ratio", ">= 2"),
        Figure("spark scan: relative to Parquet", rates["tierd"] / rates["parquet"], "ratio", ">= 0.5"),
        Figure("spark scan: batches that are ready, relative to Parquet", rates[_READY] / rates["parquet"], "ratio"),
        *figures,
    ]


def _pushdown(config_file: Path, rows: int, *, stored_bytes: int) -> list[Figure]:
    """Return the bytes that a query for 1 % of the time fetches, with its planning, and all stored bytes.

    The time range is given as options, which become offsets, and as a filter, which only a Spark pushes that makes a
    reader for each scan. A copy does not record the times of its chunks, so a filter has to read on behind the range,
    except in segments that a run of the job has made.
    """
    span_ms = rows // RECORDS * BATCH_MS
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
    return [Figure(f"{name}, {how}", 100 * size / stored_bytes, "%", "<= 3") for how, size in found.items()]


def _fetched(config_file: Path, rows: int, filters: Sequence[Filter], options: Mapping[str, str]) -> int:
    source = FilteringTieredLogDataSource(
        CaseInsensitiveDict({"config": str(config_file), "subscribe": "bench", **options})
    )
    reader = source.reader(source.schema())
    assert not list(reader.pushFilters(list(filters)))
    with reader.access.open() as tier:
        splits = reader.plan(tier)
        found = sum(b.num_rows for split in splits for b in read_split(tier, split, reader.bounds, reader.columns))
        assert abs(found - rows) <= RECORDS, f"{found} rows are not the {rows} of the range"
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
        spark.dataSource.register(ReadyBatches)
        try:
            yield spark
        finally:
            spark.stop()


def _scan(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
