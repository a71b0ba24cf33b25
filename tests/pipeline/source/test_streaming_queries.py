"""Micro-batches as Spark requests them, without Spark: each stop is followed by a new reader with the old progress."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from tests.pipeline.source.queries import Queries, read_all
from tests.pipeline.source.small_tier import SmallTier
from tierd.pipeline.pipeline_errors import DataLossError
from tierd.pipeline.source.positions import TOPIC_ID, StreamProgress
from tierd.pipeline.source.stream_reader import TierStreamReader

EVERYTHING = {"startingOffsets": "earliest"}


@pytest.fixture
def tier(tmp_path: Path) -> SmallTier:
    return SmallTier(tmp_path)


def values(reader: TierStreamReader, start: StreamProgress, end: StreamProgress) -> list[str]:
    """Return the records of a micro-batch, as topic-partition@offset."""
    rows = [row for batch in read_all(reader, reader.partitions(start, end)) for row in batch.to_pylist()]
    return [f"{row['topic']}-{row['partition']}@{row['offset']}" for row in rows]


def offsets(progress: StreamProgress) -> StreamProgress:
    """Return the offsets of a position, without the topic ids."""
    return {topic: {n: each for n, each in found.items() if n != TOPIC_ID} for topic, found in progress.items()}


class Query:
    """Streaming query that keeps its progress, as a checkpoint does."""

    def __init__(self, queries: Queries, limit: ReadLimit | None = None) -> None:
        self._queries = queries
        self._limit = limit
        self.progress: StreamProgress | None = None
        self.delivered: list[str] = []

    def run(self, *, at_most: int = 100, available_now: bool = False) -> int:
        """Run micro-batches until no new record is left; return the number of non-empty ones."""
        reader = self._queries.stream()
        try:
            if available_now:
                reader.prepareForTriggerAvailableNow()
            self.progress = self.progress or reader.initialOffset()
            for count in range(at_most):
                end = reader.latestOffset(self.progress, self._limit or reader.getDefaultReadLimit())
                if end == self.progress:
                    return count
                self.delivered += values(reader, self.progress, end)
                reader.commit(end)
                self.progress = end
            return at_most
        finally:
            reader.stop()


def named(name: str, offsets: range) -> list[str]:
    return [f"{name}@{offset}" for offset in offsets]


def test_restarted_query_delivers_each_record_once_while_segments_are_added(tier: SmallTier) -> None:
    tier.add_segment()
    query = Query(tier.queries(**EVERYTHING, maxOffsetsPerTrigger="7"))
    for added in range(4):
        query.run(at_most=1 + added)
        tier.add_segment()
    query.run()
    assert query.delivered == named("orders-0", range(100))


def test_repeated_micro_batch_is_the_same(tier: SmallTier) -> None:
    tier.add_segment()
    reader = tier.queries(**EVERYTHING).stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(13))
    first = values(reader, start, end)
    tier.add_segment()
    again = tier.queries(**EVERYTHING).stream()
    assert values(again, start, end) == first
    assert len(first) == 13


def test_a_query_without_a_checkpoint_begins_at_the_end(tier: SmallTier) -> None:
    tier.add_segment()
    query = Query(tier.queries())
    assert query.run() == 0
    tier.add_segment()
    assert query.run() == 1
    assert query.delivered == named("orders-0", range(20, 40))


def test_each_partition_gets_its_share_of_a_micro_batch(tier: SmallTier) -> None:
    tier.add_segment(60)
    tier.add_segment(20, number=1)
    reader = tier.queries(**EVERYTHING).stream()
    start = reader.initialOffset()
    assert offsets(reader.latestOffset(start, ReadMaxRows(8))) == {"orders": {"0": 6, "1": 2}}
    assert offsets(reader.latestOffset(start, ReadAllAvailable())) == {"orders": {"0": 60, "1": 20}}


def test_micro_batch_is_limited_by_bytes(tier: SmallTier) -> None:
    tier.add_segment(40)
    (stored,) = tier.installation.store_dir.rglob("*.log")
    half = stored.stat().st_size // 2
    reader = tier.queries(**EVERYTHING, maxBytesPerTrigger=str(half)).stream()
    assert reader.getDefaultReadLimit() == ReadMaxBytes(half)
    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())["orders"]["0"] in (19, 20)
    both = tier.queries(**EVERYTHING, maxBytesPerTrigger=str(half), maxOffsetsPerTrigger="39").stream()
    assert both.latestOffset(both.initialOffset(), both.getDefaultReadLimit())["orders"]["0"] in (19, 20)


def test_micro_batch_with_a_tiny_limit_makes_progress(tier: SmallTier) -> None:
    tier.add_segment(5)
    tier.add_segment(5, number=1)
    query = Query(tier.queries(**EVERYTHING, maxBytesPerTrigger="1"))
    assert query.run() == 5
    assert len(query.delivered) == 10


def test_available_now_ends_at_the_end_of_the_log_at_its_start(tier: SmallTier) -> None:
    tier.add_segment()
    reader = tier.queries(**EVERYTHING).stream()
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    tier.add_segment()
    tier.add_segment(topic="late")
    end = reader.latestOffset(start, ReadMaxRows(15))
    assert offsets(end) == {"orders": {"0": 15}, "late": {"0": 0}}
    assert offsets(reader.latestOffset(end, ReadMaxRows(15)))["orders"] == {"0": 20}
    assert Query(tier.queries(**EVERYTHING)).run(available_now=True) == 1


def test_partition_that_is_added_later_is_read_from_its_beginning(tier: SmallTier) -> None:
    tier.add_segment()
    query = Query(tier.queries(**EVERYTHING))
    query.run()
    tier.add_segment(number=1)
    tier.add_segment(topic="payments")
    query.run()
    assert sorted(query.delivered) == sorted(
        named("orders-0", range(20)) + named("orders-1", range(20)) + named("payments-0", range(20))
    )


def test_begin_of_a_later_partition_is_in_the_checkpoint_before_the_first_record_is_read(tier: SmallTier) -> None:
    """Retention removed records between plan and restart of the first micro-batch, which nobody missed."""
    tier.add_segment()
    query = Query(tier.queries(**EVERYTHING))
    query.run()
    tier.add_segment(number=1)
    query.run(at_most=1)
    assert query.progress is not None
    assert offsets(query.progress) == {"orders": {"0": 20, "1": 0}}
    tier.expire()
    tier.add_segment(number=1)
    with pytest.raises(DataLossError, match=r"orders-1: \[0, 20\) was removed by retention"):
        query.run()


@pytest.mark.parametrize(("fails", "expected"), [("true", None), ("false", range(40))])
def test_offsets_that_retention_deleted_fail_the_query_or_are_skipped(
    tier: SmallTier, fails: str, expected: range | None
) -> None:
    tier.add_segment()
    tier.add_segment()
    reader = tier.queries(**EVERYTHING, failOnDataLoss=fails).stream()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    lost: StreamProgress = {"orders": {"0": -20}}  # as if the log had begun at that offset
    if expected is None:
        with pytest.raises(DataLossError, match=r"orders-0: \[-20, 0\) was removed by retention"):
            reader.partitions(lost, end)
        return
    assert values(reader, lost, end) == named("orders-0", expected)


def test_query_continues_after_retention_deleted_all_segments(tier: SmallTier) -> None:
    tier.add_segment()
    read_all_along = Query(tier.queries(**EVERYTHING))
    read_all_along.run()
    tier.expire()
    assert read_all_along.run() == 0
    begun_now = Query(tier.queries())
    assert begun_now.run() == 0
    tier.add_segment()
    read_all_along.run()
    begun_now.run()
    assert read_all_along.delivered == named("orders-0", range(40))
    assert begun_now.delivered == named("orders-0", range(20, 40))


def test_recreated_tier_is_data_loss(tier: SmallTier) -> None:
    tier.add_segment()
    reader = tier.queries().stream()
    with pytest.raises(DataLossError, match="orders-0 ends at 20, and the query has read up to 33"):
        reader.latestOffset({"orders": {"0": 33}}, ReadAllAvailable())
    with pytest.raises(DataLossError, match="gone-3: the query has read of it"):
        reader.latestOffset({"gone": {"3": 5}}, ReadAllAvailable())
    calm = tier.queries(failOnDataLoss="false").stream()
    ends = calm.latestOffset({"gone": {"3": 5}, "orders": {"0": 33}}, ReadAllAvailable())
    assert offsets(ends) == {"gone": {"3": 5}, "orders": {"0": 33}}


def test_topic_that_was_made_anew_is_data_loss_however_long_it_is(tier: SmallTier) -> None:
    """The query went on in the new topic at the offset that it had reached in the former one."""
    tier.add_segment(20)
    query = Query(tier.queries(**EVERYTHING))
    query.run()
    tier.recreate()
    tier.add_segment(60)
    with pytest.raises(DataLossError, match="orders: the query has read of an earlier topic of that name"):
        query.run()
    assert query.delivered == named("orders-0", range(20))


def test_topic_that_was_made_anew_is_read_from_its_beginning_where_data_loss_is_no_failure(tier: SmallTier) -> None:
    tier.add_segment(20)
    tier.add_segment(20, number=1)
    query = Query(tier.queries(**EVERYTHING, failOnDataLoss="false", maxOffsetsPerTrigger="25"))
    query.run()
    before = len(query.delivered)
    shutil.rmtree(tier.partition(number=1).path)
    tier.recreate()
    tier.add_segment(60)
    query.run()
    assert query.delivered[before:] == named("orders-0", range(60))
    assert query.progress is not None
    assert offsets(query.progress) == {"orders": {"0": 60}}


def test_query_that_ends_when_it_has_everything_reads_no_topic_that_was_made_later(tier: SmallTier) -> None:
    tier.add_segment(20)
    reader = tier.queries(**EVERYTHING, failOnDataLoss="false").stream()
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    tier.recreate()
    tier.add_segment(60)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert offsets(end) == {"orders": {"0": 0}}
    assert values(reader, start, end) == []
    assert Query(tier.queries(**EVERYTHING)).run() == 1


def test_checkpoint_without_topic_ids_is_continued_and_gets_them(tier: SmallTier) -> None:
    tier.add_segment()
    query = Query(tier.queries(**EVERYTHING))
    query.run()
    assert query.progress is not None
    query.progress = offsets(query.progress)
    tier.add_segment()
    query.run()
    assert query.delivered == named("orders-0", range(40))
    assert query.progress["orders"][TOPIC_ID]
    tier.recreate()
    tier.add_segment(60)
    with pytest.raises(DataLossError, match="an earlier topic of that name"):
        query.run()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_planned_micro_batch_of_a_topic_that_was_made_anew_reads_nothing_of_the_new_one(
    tier: SmallTier, fails: str
) -> None:
    """The topic came after the begin of the micro-batch, which therefore does not name it."""
    tier.add_segment(topic="other")
    reader = tier.queries(**EVERYTHING, failOnDataLoss=fails).stream()
    start = reader.initialOffset()
    tier.add_segment(20)
    end = reader.latestOffset(reader.latestOffset(start, ReadAllAvailable()), ReadAllAvailable())
    tier.recreate()
    tier.add_segment(60)
    if fails == "true":
        with pytest.raises(DataLossError, match="orders-0: the micro-batch has offsets of it"):
            reader.partitions(start, end)
        return
    assert values(reader, start, end) == named("other-0", range(20))
    begin = reader.latestOffset(end, ReadAllAvailable())
    assert values(reader, end, begin) == []
    assert values(reader, begin, reader.latestOffset(begin, ReadAllAvailable())) == named("orders-0", range(60))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_planned_micro_batch_of_a_partition_that_is_gone_fails_or_leaves_it_out(tier: SmallTier, fails: str) -> None:
    """The micro-batch ended without the records, and the next one began behind them."""
    tier.add_segment()
    reader = tier.queries(**EVERYTHING, failOnDataLoss=fails).stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable()) | {"gone": {"3": 5}}
    if fails == "true":
        with pytest.raises(DataLossError, match="gone-3: the micro-batch has offsets of it"):
            reader.partitions(start, end)
        return
    assert values(reader, start, end) == named("orders-0", range(20))


def test_local_tail_and_tier_are_read_as_one_log(tier: SmallTier) -> None:
    tier.add_segment()
    query = Query(tier.queries(**EVERYTHING, includeLocal="true"))
    tier.append(10)
    tier.log_dir.write_checkpoints()
    query.run()
    tier.append(5)
    tier.roll()
    tier.copy()
    shutil.rmtree(tier.log_dir.path / "orders-0")
    query.run()
    assert query.delivered == named("orders-0", range(35))


def test_records_that_a_log_lost_when_it_was_cut_back_are_delivered_when_they_are_back(tier: SmallTier) -> None:
    """The micro-batch ended at the high watermark, and the records behind the cut were never read."""
    tier.add_segment()
    tier.append(10)
    tier.log_dir.write_checkpoints()
    tier.partition().cut_back(25)  # the checkpoint still says 30
    query = Query(tier.queries(**EVERYTHING, includeLocal="true"))
    query.run()
    assert query.delivered == named("orders-0", range(25))
    tier.append(5)
    query.run()
    assert query.delivered == named("orders-0", range(30))
    tier.partition().cut_back(20)
    assert query.run() == 0, "a query that has read the lost records waits"


def test_lost_end_of_a_log_that_was_cut_back_is_data_loss_for_a_query_of_all(tier: SmallTier) -> None:
    tier.add_segment()
    tier.append(10)
    tier.log_dir.write_checkpoints()
    tier.partition().cut_back(25)
    with pytest.raises(DataLossError, match=r"orders-0: \[25, 30\) is not there"):
        tier.queries(includeLocal="true").reader().partitions()
    calm = tier.queries(includeLocal="true", failOnDataLoss="false").reader()
    assert sum(batch.num_rows for batch in read_all(calm, calm.partitions())) == 25
    exact = tier.queries(includeLocal="true", endingOffsets='{"orders": {"0": 25}}').reader()
    assert sum(batch.num_rows for batch in read_all(exact, exact.partitions())) == 25
