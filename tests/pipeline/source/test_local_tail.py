"""Local log of the host behind the end of the tier, which may change between the plan of a query and its tasks."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.log.batches import make_partition, plain
from tests.pipeline.source.queries import Reader, read_all
from tests.pipeline.source.small_tier import SmallTier
from tierd.log import (
    ControlRecordType,
    NewRecord,
    PartitionDirectory,
    Producer,
    ProducerStateEntry,
    encode_batch,
    encode_end_marker,
    file_name,
)
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.pipeline.pipeline_errors import DataLossError
from tierd.pipeline.source.bounds import RecordBounds
from tierd.pipeline.source.local_tail import LocalTail, LocalTails
from tierd.pipeline.source.query import QueryPlanner
from tierd.pipeline.source.read_options import parse_options

EVERYTHING = {"includeLocal": "true", "startingOffsets": "earliest"}
END = 47

Change = Callable[[SmallTier], None]


@pytest.fixture
def small(tmp_path: Path) -> SmallTier:
    """Return ``orders-0`` with offsets 0 to 46, of which 40 and more are not in the tier."""
    made = SmallTier(tmp_path)
    for _ in range(2):
        made.append(20)
        made.roll()
    made.copy()
    made.append(7)
    made.log_dir.write_checkpoints()
    return made


def test_transaction_that_began_in_the_tier_sets_the_last_stable_offset(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    begun = ProducerStateEntry(7, 0, 0, 14, 0, 0, -1, 3)
    (directory.path / file_name(15, ".snapshot")).write_bytes(encode_producer_snapshot((begun,)))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    tail = LocalTails([tmp_path]).tail(directory)
    assert tail is not None
    assert (tail.start_offset, tail.last_stable_offset) == (10, 3)


def test_tail_of_a_log_that_was_cut_back_ends_with_its_files(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 23\n")
    tail = LocalTails([tmp_path]).tail(directory)
    assert tail is not None
    assert (tail.high_watermark, tail.last_stable_offset, tail.lost_to) == (20, 20, 23)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    whole = LocalTails([tmp_path]).tail(directory)
    assert whole is not None
    assert (whole.high_watermark, whole.lost_to) == (20, None)


def test_log_that_is_cut_back_since_the_plan_is_data_loss(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    tail = LocalTails([tmp_path]).tail(directory)
    assert tail is not None
    os.truncate(directory.path / file_name(15, ".log"), 0)
    pieces = tail.pieces(10, 20)
    assert next(pieces)
    with pytest.raises(DataLossError, match="cut back to offset 15"):
        next(pieces)


# ---------------------------------------------------------------- changes that lose records of the plan


def active_log(small: SmallTier) -> Path:
    return small.partition().path / file_name(40, ".log")


def cut(small: SmallTier) -> None:
    """Cut the active segment behind its first batch, as a crash does."""
    first_bytes = int.from_bytes(active_log(small).read_bytes()[8:12], "big") + 12
    os.truncate(active_log(small), first_bytes)


def empty(small: SmallTier) -> None:
    os.truncate(active_log(small), 0)


def cut_below_the_active_segment(small: SmallTier) -> None:
    small.partition().cut_back(30)


def write_anew(small: SmallTier) -> None:
    """Let another leader write offsets 45 and more, which the crashed one had lost."""
    small.partition().cut_back(45)
    small.partition().begin_epoch(1)
    small.append(10)
    small.log_dir.write_checkpoints()


def write_anew_from_the_tier_on(small: SmallTier) -> None:
    """Let another leader write offsets 30 and more, with a segment that begins where the active one began."""
    small.partition().cut_back(30)
    small.partition().begin_epoch(1)
    small.append(10)
    small.roll()
    small.append(20)
    small.log_dir.write_checkpoints()


def make_anew(small: SmallTier) -> None:
    """Delete the topic, and make one of the same name whose segments have the same names."""
    small.recreate()
    for _ in range(2):
        small.append(20)
        small.roll()
    small.append(20)
    small.log_dir.write_checkpoints()


def take_away(small: SmallTier) -> None:
    path = small.partition().path
    shutil.move(path, path.parent.parent / "moved")


def move_to_the_other_log_dir(small: SmallTier) -> None:
    shutil.copytree(small.partition().path, small.log_dir.path.parent / "other" / "orders-0")
    shutil.rmtree(small.partition().path)


def put_the_replica_of_another_host_there(small: SmallTier) -> None:
    path = small.partition().path
    shutil.copytree(path, path.parent.parent / "other")
    shutil.move(path, path.parent.parent / "moved")
    shutil.move(path.parent.parent / "other", path)


GONE = "not there|deleted while it was read"
LOSSES = [
    pytest.param(cut, "the log was cut back to offset 45, from 47", id="cut"),
    pytest.param(empty, "the log was cut back to offset 40, from 47", id="emptied"),
    pytest.param(cut_below_the_active_segment, GONE, id="cut below the active segment"),
    pytest.param(write_anew, "leader epoch 1 has written the offsets from 45 on anew", id="end written anew"),
    pytest.param(
        write_anew_from_the_tier_on, "leader epoch 1 has written the offsets from 30 on anew", id="written anew"
    ),
    pytest.param(make_anew, "another directory has taken its name", id="topic made anew"),
    pytest.param(take_away, GONE, id="replica gone"),
    pytest.param(move_to_the_other_log_dir, GONE, id="replica in another log dir"),
    pytest.param(put_the_replica_of_another_host_there, "another directory has taken its name", id="another replica"),
]


def batch_query(small: SmallTier, isolation: str) -> tuple[Reader, Sequence[InputPartition]]:
    reader = small.queries(**EVERYTHING, isolation=isolation).reader()
    return reader, reader.partitions()


def micro_batch(small: SmallTier, isolation: str) -> tuple[Reader, Sequence[InputPartition]]:
    reader = small.queries(**EVERYTHING, isolation=isolation).stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["orders"]["0"] == END
    tasks = reader.partitions(start, end)
    reader.stop()
    return reader, tasks


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("plan", [batch_query, micro_batch])
@pytest.mark.parametrize(("change", "problem"), LOSSES)
def test_task_fails_if_the_log_has_lost_records_of_the_plan(
    small: SmallTier,
    plan: Callable[[SmallTier, str], tuple[Reader, Sequence[InputPartition]]],
    change: Change,
    problem: str,
    isolation: str,
) -> None:
    """Such tasks ended as if they had read everything, or had the records of another log."""
    reader, tasks = plan(small, isolation)
    change(small)
    with pytest.raises(DataLossError, match=problem) as lost:
        list(read_all(reader, tasks))
    assert any("load the data frame again" in note for note in lost.value.__notes__)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_micro_batch_whose_end_the_log_has_lost_is_not_planned(small: SmallTier, fails: str) -> None:
    reader = small.queries(**EVERYTHING, failOnDataLoss=fails).stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    small.partition().cut_back(45)
    small.log_dir.write_checkpoints()
    if fails == "true":
        with pytest.raises(DataLossError, match=r"orders-0: \[45, 47\) is not there"):
            reader.partitions(start, end)
        return
    assert sum(batch.num_rows for batch in read_all(reader, reader.partitions(start, end))) == 45


# ---------------------------------------------------------------- reads of the plan itself


def tail_of(small: SmallTier) -> LocalTail:
    tails = LocalTails([small.log_dir.path])
    found = tails.tail(directory_of(small))
    assert found is not None
    return found


def directory_of(small: SmallTier) -> PartitionDirectory:
    (directory,) = LocalTails([small.log_dir.path]).partitions().values()
    return directory


READS: dict[str, Callable[[LocalTail], object]] = {
    "aborted": lambda tail: tail.aborted(0, END),
    "end_markers": lambda tail: tail.end_markers([7], 40),
    "first_since": lambda tail: tail.first_since(0, start_offset=40, end_offset=END),
    "first_since of no record": lambda tail: tail.first_since(99_000, start_offset=40, end_offset=END),
    "pieces": lambda tail: list(tail.pieces(40, END)),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(("change", "problem"), LOSSES)
def test_every_read_fails_if_the_log_has_lost_records_of_the_plan(
    small: SmallTier, read: Callable[[LocalTail], object], change: Change, problem: str
) -> None:
    tail = tail_of(small)
    read(tail)
    change(small)
    with pytest.raises(DataLossError, match=problem):
        read(tail)


def test_topic_that_takes_directory_and_inode_of_another_is_not_planned_as_the_other(small: SmallTier) -> None:
    directory = directory_of(small)
    (directory.path / "partition.metadata").write_text("version: 0\ntopic_id: EjRWeJq83vD-3LqYdlQyEA")
    with pytest.raises(DataLossError, match="another directory has taken its name"):
        LocalTails([small.log_dir.path]).tail(directory)


def test_abort_whose_marker_a_crash_cut_off_fails_the_plan(tmp_path: Path) -> None:
    """The records are in the tier; without the marker they looked committed."""
    tier = SmallTier(tmp_path)
    writer = tier.partition()
    record, producer = NewRecord(None, b"aborted", 0), Producer(7, 0, 0)
    writer.append_batch(encode_batch([record], producer=producer, is_transactional=True), 1)
    tier.roll()
    begun = ProducerStateEntry(7, 0, 0, 0, 0, 0, -1, 0)
    (writer.path / file_name(1, ".snapshot")).write_bytes(encode_producer_snapshot((begun,)))
    marker = encode_end_marker(
        kind=ControlRecordType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    writer.append_batch(marker, 1)
    tier.append(5)
    tier.copy()
    queries = tier.queries(includeLocal="true")
    with queries.access().open() as opened:
        planner = QueryPlanner(queries.access(), opened, parse_options(queries.options, is_streaming=False))
        snapshots = planner.take_snapshots()
        (name,) = snapshots
        assert snapshots[name].end_offset == 7
        writer.cut_back(1)
        with pytest.raises(DataLossError, match="the log was cut back to offset 1, from 7"):
            planner.splits(snapshots, {name: 0}, {name: 7}, RecordBounds())


# ---------------------------------------------------------------- changes that lose nothing


def roll_and_compact(small: SmallTier) -> None:
    """Roll the active segment, of which the cleaner then removes the last batch."""
    small.roll()
    cut(small)


def go_on(small: SmallTier) -> None:
    small.append(10)
    small.roll()
    small.append(10)


def elect_a_leader(small: SmallTier) -> None:
    small.partition().begin_epoch(1)
    small.append(10)


def delete_records(small: SmallTier) -> None:
    small.partition().forget_epochs_below(42)
    (small.log_dir.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 42\n")


@pytest.mark.parametrize("plan", [batch_query, micro_batch])
@pytest.mark.parametrize(
    ("change", "end"),
    [(roll_and_compact, 45), (go_on, END), (elect_a_leader, END), (delete_records, END)],
)
def test_task_reads_the_records_of_the_plan_that_the_log_still_has(
    small: SmallTier,
    plan: Callable[[SmallTier, str], tuple[Reader, Sequence[InputPartition]]],
    change: Change,
    end: int,
) -> None:
    reader, tasks = plan(small, "read_committed")
    change(small)
    offsets = [offset for batch in read_all(reader, tasks) for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(end))


def test_end_that_compaction_emptied_before_the_plan_is_no_loss(small: SmallTier) -> None:
    roll_and_compact(small)
    small.log_dir.write_checkpoints()
    rows = small.queries(**EVERYTHING).rows()
    assert [row["offset"] for row in rows] == list(range(45))


def test_log_of_an_earlier_leader_epoch_is_read_after_its_first_epochs_were_forgotten(tmp_path: Path) -> None:
    small = SmallTier(tmp_path)
    small.append(20)
    small.partition().begin_epoch(3)
    small.roll()
    small.append(20)
    small.log_dir.write_checkpoints()
    tail = tail_of(small)
    small.partition().forget_epochs_below(30)
    assert b"".join(tail.pieces(0, 40))


def test_log_without_leader_epochs_is_read(small: SmallTier) -> None:
    """A broker that lost the checkpoint makes it anew from the batches."""
    (small.partition().path / "leader-epoch-checkpoint").unlink()
    tail = tail_of(small)
    small.partition().begin_epoch(1)
    assert b"".join(tail.pieces(40, END))
