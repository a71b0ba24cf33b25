import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

from tests.pipeline.source.queries import read_all
from tests.pipeline.source.small_tier import SmallTier
from tests.tiering.setups import delete_segment
from tierd.errors import RemoteIntegrityError, UnknownPartitionError
from tierd.log import (
    ControlRecordType,
    NewRecord,
    Producer,
    ProducerStateEntry,
    encode_batch,
    encode_end_marker,
    file_name,
)
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.pipeline.pipeline_errors import DataLossError, ReadOptionError
from tierd.pipeline.source.batch_reader import TierPartition
from tierd.process_memory import ModuleFreeze

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> SmallTier:
    """Return orders-0: [0, 80) in four segments; orders-1: [0, 20); payments-0: [0, 20), and 5 local records."""
    made = SmallTier(tmp_path_factory.mktemp("tier"))
    for _ in range(4):
        made.append(20)
        made.roll()
    made.append(20, number=1)
    made.roll(number=1)
    made.append(20, "payments")
    made.roll("payments")
    made.append(5, "payments")
    made.copy()
    return made


def offsets(tier: SmallTier, *filters: object, **options: str) -> list[int]:
    rows = tier.queries(**options).rows(filters=filters)  # type: ignore[arg-type]
    return [row["offset"] for row in rows]


ORDERS_0 = {"assign": '{"orders": [0]}', "subscribePattern": ""}


def of_orders(tier: SmallTier, *filters: object, **options: str) -> list[int]:
    queries = tier.queries()
    del queries.options["subscribePattern"]
    rows = queries.rows(filters=filters, assign='{"orders": [0]}', **options)  # type: ignore[arg-type]
    return [row["offset"] for row in rows]


def test_row_has_all_columns(tier: SmallTier) -> None:
    row = tier.queries().rows()[7]
    assert row == {
        "key": b"k1",
        "value": b"v7",
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "timestamp": EPOCH + timedelta(seconds=7),
        "timestampType": 0,
        "headers": [{"key": "n", "value": b"7"}],
    }


def test_worker_freezes_its_modules_after_a_task_and_other_processes_do_not(
    tier: SmallTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(ModuleFreeze, "freeze_new", lambda _: frozen.append(1))
    reader = tier.queries().reader()
    tasks = reader.partitions()

    assert list(read_all(reader, tasks[:1]))
    assert not frozen
    monkeypatch.setattr(TaskContext, "get", object)
    assert list(read_all(reader, tasks[:1]))
    assert frozen == [1]


def test_only_the_requested_columns_are_read(tier: SmallTier) -> None:
    source = tier.queries().source()
    full = source.schema()
    schema = type(full)([full["offset"], full["key"]])
    reader = source.reader(schema)
    first = next(read_all(reader, reader.partitions()))
    assert first.schema.names == ["offset", "key"]
    assert "headers" not in [f.name for f in tier.queries(includeHeaders="false").source().schema().fields]


def test_an_unknown_column_is_refused_with_the_nearest_name(tier: SmallTier) -> None:
    source = tier.queries().source()
    field = source.schema()["offset"]
    field.name = "ofset"
    with pytest.raises(ReadOptionError, match="no column ofset; the nearest is offset"):
        source.reader(type(source.schema())([field]))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(80)),
        ({"startingOffsets": '{"orders": {"0": 33}}'}, range(33, 80)),
        ({"startingOffsets": '{"orders": {"0": -2}}', "endingOffsets": '{"orders": {"0": 47}}'}, range(47)),
        ({"endingOffsets": '{"orders": {"0": -1}}'}, range(80)),
        ({"startingTimestamp": "12001", "endingTimestamp": "61000"}, range(13, 61)),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 70000}}'}, range(70, 80)),
        ({"startingTimestamp": "99999", "startingOffsetsByTimestampStrategy": "latest"}, range(0)),
        ({"partitionBytes": "300"}, range(80)),
        ({"minPartitions": "9"}, range(80)),
        ({"maxRecordsPerPartition": "7"}, range(80)),
    ],
)
def test_offset_and_time_options_select_the_records(tier: SmallTier, options: dict[str, str], expected: range) -> None:
    assert of_orders(tier, **options) == list(expected)


def test_starting_timestamp_after_the_last_record_is_an_error(tier: SmallTier) -> None:
    with pytest.raises(ReadOptionError, match="orders-0 has no record with timestamp 99999"):
        of_orders(tier, startingTimestamp="99999")


def test_tasks_are_cut_by_the_options(tier: SmallTier) -> None:
    reader = tier.queries(maxRecordsPerPartition="7", isolation="read_uncommitted").reader()
    splits = [p.split for p in reader.partitions() if isinstance(p, TierPartition) and p.split is not None]
    assert all(split.end_offset - split.start_offset <= 7 for split in splits)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThanOrEqual(("offset",), 18), LessThan(("offset",), 23)], range(18, 23)),
        ([GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(seconds=39.5))], range(40, 80)),
        ([LessThan(("timestamp",), EPOCH + timedelta(seconds=3))], range(3)),
        ([EqualTo(("topic",), "none")], range(0)),
        ([In(("offset",), (3, 5))], range(3, 6)),
    ],
)
def test_filters_leave_out_rows_that_do_not_match(tier: SmallTier, filters: list[object], expected: range) -> None:
    assert of_orders(tier, *filters) == list(expected)


def test_segments_that_cannot_match_a_filter_are_not_fetched(tier: SmallTier) -> None:
    reader = tier.queries().reader()
    list(reader.pushFilters([GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(seconds=60))]))
    with reader.access.open() as opened:
        splits = reader.plan(opened)
    assert [(s.name.topic, s.name.partition, s.parts[0].start_offset) for s in splits] == [("orders", 0, 60)]


def test_topics_and_partitions_excluded_by_a_filter_are_not_planned(tier: SmallTier) -> None:
    reader = tier.queries().reader()
    list(reader.pushFilters([EqualTo(("topic",), "orders"), EqualTo(("partition",), 1)]))
    with reader.access.open() as opened:
        assert {str(split.name) for split in reader.plan(opened)} == {"orders-1"}


def test_records_only_on_the_host_are_read_with_include_local(tier: SmallTier) -> None:
    wanted = EqualTo(("topic",), "payments")
    assert offsets(tier, wanted) == list(range(20))
    assert offsets(tier, wanted, includeLocal="true") == list(range(25))


def test_abort_that_a_recovering_broker_forgot_is_found_with_include_local(tmp_path: Path) -> None:
    """The broker deleted the first segment, was killed, and recovered the second one without the producers of both."""
    tier = SmallTier(tmp_path)
    writer = tier.partition()
    record, producer = NewRecord(None, b"aborted", 0), Producer(7, 0, 0)
    writer.append_batch(encode_batch([record], producer=producer, is_transactional=True), 1)
    tier.roll()
    snapshot = writer.path / file_name(1, ".snapshot")
    snapshot.write_bytes(encode_producer_snapshot((ProducerStateEntry(7, 0, 0, 0, 0, 0, -1, 0),)))
    marker = encode_end_marker(
        kind=ControlRecordType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    writer.append_batch(marker, 1)
    tier.append(5)
    tier.copy()
    delete_segment(writer.path, 0)
    snapshot.unlink()
    assert offsets(tier, includeLocal="true", isolation="read_committed") == list(range(2, 7))


def test_rows_of_a_transaction_whose_marker_is_in_no_place_are_refused(tmp_path: Path) -> None:
    """The broker has deleted the segment with the marker, which tierd holds and has not copied yet."""
    tier = SmallTier(tmp_path)
    writer = tier.partition()
    record, producer = NewRecord(None, b"aborted", 0), Producer(7, 0, 0)
    writer.append_batch(encode_batch([record], producer=producer, is_transactional=True), 1)
    tier.roll()
    snapshot = writer.path / file_name(1, ".snapshot")
    snapshot.write_bytes(encode_producer_snapshot((ProducerStateEntry(7, 0, 0, 0, 0, 0, -1, 0),)))
    marker = encode_end_marker(
        kind=ControlRecordType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    writer.append_batch(marker, 1)
    tier.copy()
    tier.roll()
    tier.append(5)
    delete_segment(writer.path, 0)
    delete_segment(writer.path, 1)
    with pytest.raises(DataLossError, match="began at offset 0 was committed or aborted at offset 1 or later"):
        offsets(tier, includeLocal="true", isolation="read_committed", endingOffsets='{"orders": {"0": 1}}')


def test_recreated_topic_is_the_one_in_the_log_dir_before_its_first_copy(tmp_path: Path) -> None:
    tier = SmallTier(tmp_path)
    tier.add_segment()
    tier.recreate()
    tier.append(5)
    tier.log_dir.write_checkpoints()
    assert offsets(tier, includeLocal="true") == list(range(5))
    (tier.log_dir.path / "replication-offset-checkpoint").write_text("0\n0\n")  # none of its records is committed yet
    assert offsets(tier, includeLocal="true") == []


def test_all_partitions_of_a_topic_are_of_one_incarnation(tmp_path: Path) -> None:
    """A partition of which the new topic has copied nothing yet was read from the former topic."""
    tier = SmallTier(tmp_path)
    tier.add_segment(20)
    tier.add_segment(20, number=1)
    tier.add_segment(20, number=2)
    for number in (1, 2):
        shutil.rmtree(tier.partition(number=number).path)
    tier.recreate()
    tier.add_segment(5)
    expected = [("orders", 0, n) for n in range(5)]
    assert [(row["topic"], row["partition"], row["offset"]) for row in tier.queries().rows()] == expected
    local = tier.queries(includeLocal="true").rows()
    assert [(row["topic"], row["partition"], row["offset"]) for row in local] == expected
    queries = tier.queries()
    del queries.options["subscribePattern"]
    with pytest.raises(UnknownPartitionError, match=r"does not know .*orders-1"):
        queries.rows(assign='{"orders": [1]}')


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_segment_that_goes_while_the_query_is_planned_fails_the_plan_with_the_advice_to_run_it_again(
    tmp_path: Path, isolation: str
) -> None:
    tier = SmallTier(tmp_path)
    tier.add_segment()
    for stored in tier.installation.store_dir.rglob("*.indexes"):
        stored.unlink()
    with pytest.raises(DataLossError, match="a segment is gone meanwhile") as gone:
        tier.queries(isolation=isolation, startingTimestamp="5000").rows()
    assert any("run the query again" in note for note in gone.value.__notes__)


def test_include_local_is_refused_on_a_host_without_the_log_dirs(tier: SmallTier) -> None:
    reader = tier.queries(includeLocal="true").reader()
    object.__setattr__(reader.access, "log_dirs", (Path("/nowhere/kafka"),))
    with pytest.raises(ReadOptionError, match="this host has none of the log dirs /nowhere/kafka"):
        reader.partitions()


def test_an_unknown_topic_is_refused_with_the_nearest_name(tier: SmallTier) -> None:
    queries = tier.queries()
    del queries.options["subscribePattern"]
    with pytest.raises(UnknownPartitionError, match="does not know order") as refused:
        queries.rows(subscribe="order")
    assert any("tierd status" in note for note in refused.value.__notes__)


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_missing_offsets_fail_the_query_or_are_skipped(tier: SmallTier, option: str) -> None:
    asked = {option: '{"orders": {"0": 90}}'}
    with pytest.raises(DataLossError, match="orders-0"):
        of_orders(tier, **{"endingOffsets": '{"orders": {"0": 95}}', **asked})
    assert of_orders(tier, failOnDataLoss="false", **asked) == ([] if option == "startingOffsets" else list(range(80)))


def test_query_reads_the_segments_that_existed_at_its_planning(tmp_path: Path) -> None:
    tier = SmallTier(tmp_path)
    tier.add_segment()
    reader = tier.queries().reader()
    planned = reader.partitions()
    tier.add_segment()
    assert sum(batch.num_rows for batch in read_all(reader, planned)) == 20
    assert len(tier.queries().rows()) == 40


def test_removed_segment_fails_the_task_with_the_advice_to_load_again(tmp_path: Path) -> None:
    tier = SmallTier(tmp_path)
    tier.add_segment()
    reader = tier.queries().reader()
    planned = reader.partitions()
    shutil.rmtree(tier.installation.store_dir)
    tier.installation.store_dir.mkdir()
    with pytest.raises(DataLossError, match="is gone, which was there when the query was planned") as gone:
        list(read_all(reader, planned))
    assert any("load the data frame again" in note for note in gone.value.__notes__)


@pytest.mark.parametrize(
    ("size_bytes", "content", "problem"),
    [(600 << 20, b"", "no manifest has more than"), (None, b'{"a":' * 3_000, "nested too deeply")],
    ids=["huge", "deep"],
)
def test_forged_manifest_fails_only_the_task_of_its_segment(
    tmp_path: Path, size_bytes: int | None, content: bytes, problem: str
) -> None:
    tier = SmallTier(tmp_path)
    tier.add_segment()
    tier.add_segment(topic="other")
    manifest = next(path for path in tier.installation.store_dir.rglob("*.manifest") if "orders" in str(path))
    manifest.chmod(0o600)
    manifest.write_bytes(content)
    if size_bytes is not None:
        os.truncate(manifest, size_bytes)
    with pytest.raises(RemoteIntegrityError, match=problem) as caught:
        tier.queries(subscribePattern="orders").rows()
    assert manifest.name in str(caught.value)
    assert len(tier.queries(subscribePattern="other").rows()) == 20


def test_damage_in_the_store_fails_the_task(tmp_path: Path) -> None:
    tier = SmallTier(tmp_path)
    tier.add_segment()
    (stored,) = tier.installation.store_dir.rglob("*.log")
    content = bytearray(stored.read_bytes())
    content[-3] ^= 1
    stored.chmod(0o600)
    stored.write_bytes(content)
    with pytest.raises(RemoteIntegrityError):
        tier.queries().rows()


def test_timestamp_that_spark_cannot_express_is_refused(tmp_path: Path) -> None:
    """The producer has sent nanoseconds instead of milliseconds."""
    tier = SmallTier(tmp_path)
    tier.append(10, times_s=[0] * 9 + [1_700_000_000_000_000])
    tier.roll()
    tier.copy()
    with pytest.raises(ReadOptionError, match=r"orders-0 has a record of 1700000000000000000 ms") as refused:
        tier.queries().rows()
    assert any("without the column timestamp" in note for note in refused.value.__notes__)
    source = tier.queries().source()
    full = source.schema()
    reader = source.reader(type(full)([full["offset"], full["value"]]))
    assert sum(batch.num_rows for batch in read_all(reader, reader.partitions())) == 10
    soon = LessThan(("timestamp",), EPOCH + timedelta(days=1))
    assert [row["offset"] for row in tier.queries().rows(filters=[soon])] == list(range(9))
