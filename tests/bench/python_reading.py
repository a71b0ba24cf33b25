"""Rows that ``tierd.reader`` gives a second, and bytes that ``tierd export`` writes.

References are the same rows in the same run: by the decoder of aiokafka in a plain loop of Python over the stored logs,
in Python and with its compiled extension, and by pyarrow from Parquet. The log dir is gone: every row comes from the
tier.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

import tierd
from tests.bench.report import Figure
from tests.bench.scanned_tier import aiokafka_compiled, aiokafka_in_python, filled_tier, per_second
from tests.fakes.log_dirs import CLUSTER_ID
from tierd.kernels import compile_kernels
from tierd.scanning.arrow_reader import Scan

_PLAIN = "aiokafka, plain Python"
_COMPILED = "aiokafka, compiled"
_FOUR_COLUMNS = ("key", "value", "offset", "timestamp")


def bench_python_reading(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Read a partition of about ``size_bytes`` with values of 100 B, and one with values of 1,000 B."""
    compile_kernels()
    figures = []
    for value_bytes in (100, 1_000):
        folder = root / str(value_bytes)
        folder.mkdir(mode=0o711)
        figures += _figures(folder, size_bytes, value_bytes, rounds)
    return figures


def _figures(root: Path, size_bytes: int, value_bytes: int, rounds: int) -> list[Figure]:
    config_file, rows = filled_tier(root, size_bytes, value_bytes=value_bytes)
    logs = sorted((root / "store").rglob("*.log"))
    stored_bytes = sum(log.stat().st_size for log in logs)
    shutil.rmtree(root / "kafka")
    with tierd.reader(config_file, cluster_id=CLUSTER_ID) as tier:
        scan = tier.scan("bench")
        pq.write_table(scan.to_table(), root / "rows.parquet", compression="zstd")
        reads: dict[str, Callable[[], None]] = {
            "tierd": lambda: _read(scan.select(*_FOUR_COLUMNS), rows),
            "tierd, all columns": lambda: _read(scan, rows),
            "tierd, offset and timestamp": lambda: _read(scan.select("offset", "timestamp"), rows),
            "parquet": lambda: _read_parquet(root / "rows.parquet", rows),
            _PLAIN: lambda: aiokafka_in_python(logs, rows),
            _COMPILED: lambda: aiokafka_compiled(logs, rows),
        }
        rates = per_second(reads, rows, rounds)
    name = f"python, {value_bytes} B"
    return [
        *(Figure(f"{name}: {reader}", rate / 1e6, "M rows/s") for reader, rate in rates.items()),
        Figure(f"{name}: tierd", rates["tierd"] * stored_bytes / rows / 1e6, "MB/s"),
        Figure(
            f"{name}: relative to aiokafka in plain Python",
            rates["tierd"] / rates[_PLAIN],
            "ratio",
            ">= 3" if value_bytes == 100 else "",
        ),
        Figure(f"{name}: relative to aiokafka compiled", rates["tierd"] / rates[_COMPILED], "ratio"),
        Figure(f"{name}: relative to Parquet", rates["tierd"] / rates["parquet"], "ratio"),
    ]


def _read(scan: Scan, rows: int) -> None:
    assert sum(batch.num_rows for batch in scan) == rows


def _read_parquet(file: Path, rows: int) -> None:
    with pq.ParquetFile(file) as opened:
        found = sum(batch.num_rows for batch in opened.iter_batches(1 << 16, columns=list(_FOUR_COLUMNS)))
    assert found == rows
