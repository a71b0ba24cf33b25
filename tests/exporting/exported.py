"""Batches for exports, and what the files of an export hold."""

import json
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

from tierd.exporting import ExportFolder, ExportFormat, ExportLimits
from tierd.exporting.export_directory import ExportDirectory
from tierd.exporting.range_sink import ExportLayout, RangeSink
from tierd.model import IsolationLevel, TopicIdPartition
from tierd.scanning.row_layout import ROW_SCHEMA

PARTITION = TopicIdPartition(UUID(int=7), "orders", 3)
DAY_MS = 86_400_000
JOB = {"topic": "orders"}


def rows(first_offset: int, times_ms: Sequence[int], *, value: bytes = b"v") -> pa.RecordBatch:
    """Return a row for each time, with offsets from ``first_offset`` on."""
    count = len(times_ms)
    table = pa.Table.from_pylist(
        [
            {
                "key": b"k",
                "value": value,
                "topic": PARTITION.topic,
                "partition": PARTITION.partition,
                "offset": first_offset + n,
                "timestampType": 0,
                "headers": [{"key": "h", "value": None}],
                "leaderEpoch": None,
            }
            for n in range(count)
        ],
        schema=pa.schema([field for field in ROW_SCHEMA if field.name != "timestamp"]),
    )
    times = pa.array(times_ms, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    table = table.append_column("timestamp", times).select(ROW_SCHEMA.names)
    (batch,) = table.to_batches()
    return batch


def layout(
    kind: ExportFormat = ExportFormat.PARQUET,
    *,
    max_rows: int | None = None,
    max_bytes: int = 1 << 30,
    folders: tuple[ExportFolder, ...] = (),
) -> ExportLayout:
    return ExportLayout(
        format=kind,
        limits=ExportLimits(rows=max_rows, size_bytes=max_bytes),
        folders=folders,
        isolation=IsolationLevel.READ_COMMITTED,
        cluster_id="dGllcmQtc3ludGhldGljLQ",
    )


def sink(into: Path, form: ExportLayout, from_offset: int = 0) -> tuple[ExportDirectory, RangeSink]:
    directory = ExportDirectory.open(into, JOB)
    return directory, RangeSink(directory, form, PARTITION, from_offset)


def write_all(made: RangeSink, batch: pa.RecordBatch) -> None:
    """Write all rows of a batch, step by step."""
    rest: pa.RecordBatch | None = batch
    while rest is not None:
        rest = made.write(rest)


def files(into: Path) -> list[str]:
    """Return the files of an export by their paths below the directory; those that are hidden are left out."""
    found = (path.relative_to(into) for path in into.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not path.parts[0].startswith("."))


def offsets(file: Path) -> list[int]:
    """Return the offsets of a file, in its order."""
    match file.suffix:
        case ".parquet":
            rows_of_file = pq.read_table(file, columns=["offset"], partitioning=None).to_pylist()
        case ".arrow":
            rows_of_file = feather.read_table(file).select(["offset"]).to_pylist()
        case _:
            rows_of_file = [json.loads(line) for line in file.read_text().splitlines()]
    return [row["offset"] for row in rows_of_file]


def all_offsets(into: Path) -> list[int]:
    """Return the offsets of all files, ascending, as often as they are there."""
    return sorted(offset for name in files(into) for offset in offsets(into / name))


def staged(into: Path) -> list[str]:
    """Return the files in the hidden directory beside the journal."""
    return sorted(path.name for path in (into / ".tierd-export").iterdir() if path.name != "journal")
