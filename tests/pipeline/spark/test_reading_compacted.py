"""Queries over segments that a run of the job wrote, or replaced during the query."""

import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import Filter, GreaterThanOrEqual, LessThan

from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter, PartitionWriter
from tests.pipeline.source.queries import Queries, Row, read_all
from tests.pipeline.spark.job_lab import JobLab
from tierd.log import NewRecord, encode_batch, iter_batches
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.pipeline import register
from tierd.pipeline.pipeline_errors import DataLossError
from tierd.pipeline.planning import CleaningPolicy
from tierd.pipeline.source.split_reading import read_split
from tierd.remote import SegmentManifest

CHUNK_BYTES = 1 << 20
SEGMENTS, BATCHES, RECORDS, VALUE_BYTES = 6, 50, 16, 2_000  # a segment of 1.6 MB; one of every pair of records is kept
ONE_OUTPUT = CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=0.0)
SMALL_OUTPUTS = CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=0.0, segment_bytes=3_000)
BATCH_MS = 1_000
SPAN_MS = SEGMENTS * BATCHES * BATCH_MS
INDEX_BYTES = 100_000  # more than indexes and manifests, which are read whole, and less than a chunk


@dataclass(frozen=True)
class Moments:
    """Time range [begin, end) of a query."""

    begin_ms: int
    end_ms: int

    def __contains__(self, moment: datetime) -> bool:
        return self.begin_ms <= round(moment.timestamp() * 1000) < self.end_ms

    @property
    def filters(self) -> list[Filter]:
        begin, end = (datetime.fromtimestamp(at / 1000, UTC) for at in (self.begin_ms, self.end_ms))
        return [GreaterThanOrEqual(("timestamp",), begin), LessThan(("timestamp",), end)]

    @property
    def condition(self) -> str:
        return f"timestamp >= timestamp_millis({self.begin_ms}) and timestamp < timestamp_millis({self.end_ms})"

    def overlap(self, first_ms: int | None, last_ms: int | None) -> bool:
        assert first_ms is not None, "the run knows every record"
        assert last_ms is not None, "the run knows every record"
        return first_ms < self.end_ms and last_ms >= self.begin_ms


MIDDLE = Moments(FIRST_TIMESTAMP_MS + SPAN_MS // 2, FIRST_TIMESTAMP_MS + SPAN_MS // 2 + SPAN_MS // 100)


def in_order(batch: int, record: int) -> int:
    return FIRST_TIMESTAMP_MS + batch * BATCH_MS + record


def out_of_order(batch: int, record: int) -> int:
    """Return times that decrease within each half-chunk; the first record is of the far future."""
    if (batch, record) == (0, 0):
        return FIRST_TIMESTAMP_MS + 100 * SPAN_MS
    stretch, within = divmod(batch, 10)
    return FIRST_TIMESTAMP_MS + (stretch * 10 + 9 - within) * BATCH_MS + RECORDS - record


def fill(writer: PartitionWriter, time_of: Callable[[int, int], int]) -> None:
    """Write segments whose records come in pairs of a key, so that a compaction must rewrite every batch."""
    chance = random.Random(7)
    for segment in range(SEGMENTS):
        for batch in range(segment * BATCHES, (segment + 1) * BATCHES):
            records = [
                NewRecord(b"%d" % (batch * RECORDS + n // 2), chance.randbytes(VALUE_BYTES), time_of(batch, n))
                for n in range(RECORDS)
            ]
            writer.append_batch(encode_batch(records), RECORDS)
        writer.roll()


@asynccontextmanager
async def copied(root: Path, write: Callable[[PartitionWriter], None]) -> AsyncIterator[JobLab]:
    """Copy the written records of orders-0 to the tier, in chunks of a mebibyte."""
    log_dir = LogDirWriter(root / "logdir")
    write(log_dir.add_partition("orders"))
    log_dir.write_checkpoints()
    async with JobLab.opened(root, log_dir.path, chunk_size="1MiB") as lab:
        await lab.copy()
        yield lab


def queries(lab: JobLab) -> Queries:
    lab.command()  # leaves the configuration of the tier behind
    return Queries(lab.scratch / "tierd.yaml", subscribe="orders")


def in_state(lab: JobLab, state: RemoteLogSegmentState) -> list[RemoteLogSegmentMetadata]:
    return [row for row in lab.rows("orders-0") if row.state is state]


def bytes_of_chunks_with(
    lab: JobLab, output: RemoteLogSegmentMetadata, manifest: SegmentManifest, moments: Moments
) -> int:
    """Return the bytes of the chunks that may have records of these times, and of batches that reach into them."""
    (stored,) = (path for path in (lab.scratch / "bucket").rglob("*.log") if path.stat().st_size == output.size_bytes)
    wanted = {
        number
        for number, chunk in enumerate(manifest.log.chunks)
        if moments.overlap(chunk.min_timestamp_ms, chunk.max_timestamp_ms)
    }
    assert 1 <= len(wanted) <= 2 < len(manifest.log.chunks) - 2, "the range is narrow"
    return sum(
        batch.size_bytes
        for batch in iter_batches(stored.read_bytes(), name=stored.name)
        if wanted & set(range(batch.position // CHUNK_BYTES, (batch.end_position - 1) // CHUNK_BYTES + 1))
    )


@pytest.mark.parametrize("time_of", [in_order, out_of_order])
async def test_query_of_a_narrow_time_range_fetches_only_chunks_of_that_time_from_a_rewritten_segment(
    tmp_path: Path, spark: SparkSession, time_of: Callable[[int, int], int]
) -> None:
    async with copied(tmp_path, lambda writer: fill(writer, time_of)) as lab:
        found = await lab.compact(spark.sparkContext, {"orders-0": ONE_OUTPUT})
        assert (found.committed, found.failed, found.refused) == (1, 0, 0)
        (output,) = in_state(lab, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        for leaving in in_state(lab, RemoteLogSegmentState.DELETE_SEGMENT_STARTED):
            assert await lab.session.tiering.removals.remove_at_once(leaving)

        everything = queries(lab).rows()
        assert len(everything) == SEGMENTS * BATCHES * RECORDS // 2
        with queries(lab).access().open() as tier:
            border_ms = tier.manifest(output).log.chunks[2].min_timestamp_ms
        assert border_ms is not None
        for moments in (MIDDLE, Moments(border_ms - 2 * BATCH_MS, border_ms + 2 * BATCH_MS)):
            rows = rows_of(lab, output, moments)
            assert rows == [row for row in everything if row["timestamp"] in moments]
            assert len(rows) >= RECORDS // 2
        shown = load(spark, lab).where(moments.condition).select("offset").collect()
        assert [row.offset for row in shown] == [row["offset"] for row in rows]


def rows_of(lab: JobLab, output: RemoteLogSegmentMetadata, moments: Moments) -> list[Row]:
    """Return the rows of the source; check that it fetches little more than the chunks of these times."""
    reader = queries(lab).reader()
    assert not list(reader.pushFilters(moments.filters))
    with reader.access.open() as tier:
        splits = reader.plan(tier)
        batches = [b for split in splits for b in read_split(tier, split, reader.bounds, reader.columns)]
        fetched_bytes = tier.fetched_bytes
        wanted_bytes = bytes_of_chunks_with(lab, output, tier.manifest(output), moments)
    rows: list[Row] = [row for batch in batches for row in batch.to_pylist()]
    assert len(rows) * VALUE_BYTES < fetched_bytes < wanted_bytes + INDEX_BYTES
    return rows


def load(spark: SparkSession, lab: JobLab) -> DataFrame:
    register(spark)
    return spark.read.format("tierd").options(**queries(lab).options).load()


def fill_small(writer: PartitionWriter) -> None:
    """Write six segments of ten records of one key each; the last record of each key is kept."""
    for segment in range(6):
        for n in range(5):
            records = [NewRecord(b"%d" % segment, b"v%d" % (segment * 10 + 2 * n + m), 1_000 * n) for m in (0, 1)]
            writer.append_batch(encode_batch(records), 2)
        writer.roll()


async def test_query_reads_its_planned_segments_although_a_run_replaced_them(
    tmp_path: Path, spark: SparkSession
) -> None:
    async with copied(tmp_path, fill_small) as lab:
        reader = queries(lab).reader(partitionBytes="500")
        planned = reader.partitions()
        assert len(planned) > 3
        before = list(range(60))
        assert offsets(read_all(reader, planned)) == before

        found = await lab.compact(spark.sparkContext, {"orders-0": SMALL_OUTPUTS})
        assert (found.committed > 0, found.failed, found.refused) == (True, 0, 0)
        assert offsets(read_all(reader, planned)) == before, "the grace serves such queries"
        assert offsets(queries(lab).batches()) == list(range(9, 60, 10))


@pytest.mark.parametrize("already_read", [0, 1])
async def test_query_over_replaced_segments_fails_after_their_grace_and_does_not_mix_old_and_new_records(
    tmp_path: Path, spark: SparkSession, already_read: int
) -> None:
    async with copied(tmp_path, fill_small) as lab:
        reader = queries(lab).reader()
        (planned,) = reader.partitions()
        rows = reader.read(planned)
        seen = offsets(islice(rows, already_read))
        assert seen == list(range(10 * already_read)), "a batch of rows a segment"

        await lab.compact(spark.sparkContext, {"orders-0": SMALL_OUTPUTS})
        for leaving in in_state(lab, RemoteLogSegmentState.DELETE_SEGMENT_STARTED):
            assert await lab.session.tiering.removals.remove_at_once(leaving)
        with pytest.raises(
            DataLossError, match=r"is gone, .* a compaction whose grace \(expire.grace\) is over"
        ) as gone:
            offsets(rows)
        assert any("load the data frame again" in note for note in gone.value.__notes__)
        assert [row.offset for row in load(spark, lab).collect()] == list(range(9, 60, 10))


def offsets(batches: Iterator[object] | Sequence[object]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]  # type: ignore[attr-defined]
