"""Transactions over the groups of a run: a marker is kept while any group has data of its transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from tests.pipeline.rewriting.compacted_log import LATER_MS, CompactedLog
from tests.pipeline.spark.job_lab import JobLab
from tierd.log import ControlRecordType, RecordBatch, iter_batches
from tierd.model import ByteRange, IsolationLevel, RemoteLogSegmentState, uuid_to_text
from tierd.pipeline.planning import CleaningPolicy

A_GROUP_A_SEGMENT = CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=0.0, segment_bytes=1)


@asynccontextmanager
async def tiered(root: Path, log: CompactedLog) -> AsyncIterator[JobLab]:
    """Return the lab over the log, without any copied segment."""
    (log.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(uuid4())}")
    async with JobLab.opened(root, log.directory.parent) as lab:
        yield lab


async def copy(lab: JobLab, log: CompactedLog) -> None:
    """Copy rolled segments, all replicated and decided; they also stay in the log dir."""
    end = log.log.log_end_offset
    (log.directory.parent / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {end}\n")
    lab.session = lab.new_session()
    outcomes = await lab.session.copy_once()
    assert all(outcome.error is None for outcome in outcomes.values()), outcomes


async def batches(lab: JobLab) -> list[RecordBatch]:
    """Return the batches of the readable segments."""
    rows = [row for row in lab.rows("orders-0") if row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    whole = ByteRange(0, 1 << 30)
    logs = [await lab.session.storage.fetch_log_segment(row, whole) if row.size_bytes else b"" for row in rows]
    return [batch for content in logs for batch in iter_batches(content, name="tier")]


async def markers(lab: JobLab) -> dict[int, ControlRecordType | None]:
    return {batch.base_offset: batch.control_type() for batch in await batches(lab) if batch.is_control}


async def test_marker_is_kept_while_data_of_its_transaction_is_in_an_earlier_group(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "logdir").mkdir()
    log = CompactedLog(tmp_path / "logdir")
    log.in_transaction(1, 1)  # 0
    log.in_transaction(2, 2)  # 1
    log.in_transaction(3, 3)  # 2
    log.in_transaction(4, 4)  # 3
    log.roll()
    log.commit(1)  # 4
    log.abort(2)  # 5: a group with no record to lose, which is tried before it is begun
    log.roll()
    log.write(9, 9)  # 6, 7
    log.commit(3)  # 8
    log.abort(4)  # 9: a group that loses a record, and so is begun at once
    log.roll()
    log.write(10)  # 10
    log.roll()
    async with tiered(tmp_path, log) as lab:
        await copy(lab, log)
        wanted = {
            4: ControlRecordType.COMMIT,
            5: ControlRecordType.ABORT,
            8: ControlRecordType.COMMIT,
            9: ControlRecordType.ABORT,
        }
        for now_ms in (
            lab.tier.clock.now_ms(),
            LATER_MS,
            2 * LATER_MS,
        ):  # horizons would be set, pass, and be long past
            lab.at(now_ms)
            found = await lab.compact(spark.sparkContext, {"orders-0": A_GROUP_A_SEGMENT})
            assert (found.groups > 3, found.failed, found.refused) == (True, 0, 0)
            assert await markers(lab) == wanted
            log.write(9, 10)  # so that another run has work
            log.roll()
            await copy(lab, log)
        assert {batch.base_offset: batch.record_count for batch in await batches(lab) if batch.base_offset < 4} == {
            0: 1,  # committed
            1: 0,  # aborted: the last of its producer, so its header stays
            2: 1,
            3: 0,
        }
        committed = {record.key for record in await lab.read("orders-0", IsolationLevel.READ_COMMITTED)}
        assert committed == {b"1", b"3", b"9", b"10"}
