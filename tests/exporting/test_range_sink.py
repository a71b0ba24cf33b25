"""Rows of a partition as files: names, limits, folders, facts."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.exporting.exported import (
    DAY_MS,
    PARTITION,
    all_offsets,
    files,
    layout,
    offsets,
    rows,
    sink,
    staged,
    write_all,
)
from tierd.exporting import ExportFolder, ExportFormat
from tierd.exporting.range_sink import RangeSink
from tierd.model import TopicIdPartition

NAME = "orders-3-{:020d}-{:020d}.{}"


@pytest.mark.parametrize("kind", ExportFormat)
def test_files_are_named_for_their_first_and_last_record_and_end_at_the_limit_of_rows(
    kind: ExportFormat, tmp_path: Path
) -> None:
    directory, made = sink(tmp_path, layout(kind, max_rows=4), 10)
    write_all(made, rows(10, [0] * 6))
    assert files(tmp_path) == [NAME.format(10, 13, kind)]
    write_all(made, rows(16, [0] * 3))
    made.finish(25)
    directory.close()
    assert files(tmp_path) == [NAME.format(10, 13, kind), NAME.format(14, 17, kind), NAME.format(18, 18, kind)]
    assert all_offsets(tmp_path) == list(range(10, 19))
    assert (made.records, made.files, made.next_offset) == (9, 3, 25)
    assert staged(tmp_path) == []


@pytest.mark.parametrize("kind", ExportFormat)
def test_file_ends_behind_the_batch_that_reaches_the_limit_of_bytes(kind: ExportFormat, tmp_path: Path) -> None:
    directory, made = sink(tmp_path, layout(kind, max_bytes=1))
    for first in (0, 5, 10):
        write_all(made, rows(first, [0] * 5))
    directory.close()
    assert [offsets(tmp_path / name) for name in files(tmp_path)] == [[*range(n, n + 5)] for n in (0, 5, 10)]


def test_parquet_file_says_what_it_holds(tmp_path: Path) -> None:
    directory, made = sink(tmp_path, layout(), 5)
    write_all(made, rows(6, [1_000, 2_000]))
    write_all(made, rows(8, [3_000]))
    made.finish(20)
    directory.close()
    (name,) = files(tmp_path)
    found = pq.read_metadata(tmp_path / name)
    facts = {key.decode(): value.decode() for key, value in (found.metadata or {}).items() if key.startswith(b"tierd.")}
    assert facts == {
        "tierd.cluster_id": "dGllcmQtc3ludGhldGljLQ",
        "tierd.topic": "orders",
        "tierd.topic_id": "AAAAAAAAAAAAAAAAAAAABw",
        "tierd.partition": "3",
        "tierd.isolation": "read_committed",
        "tierd.from_offset": "5",
        "tierd.next_offset": "20",
        "tierd.records": "3",
    }
    assert found.num_row_groups == 2
    of_first_group = [found.row_group(0).column(n) for n in range(found.num_columns)]
    columns = {column.path_in_schema: column for column in of_first_group}
    assert {name for name, column in columns.items() if column.is_stats_set} == {
        "key", "topic", "partition", "offset", "timestamp", "timestampType", "leaderEpoch",
    }  # fmt: skip
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    offset_statistics = columns["offset"].statistics
    assert offset_statistics is not None
    assert (offset_statistics.min, offset_statistics.max) == (6, 7)
    assert list(found.row_group(0).sorting_columns) == [pq.SortingColumn(4)]


def test_arrow_file_says_what_it_holds(tmp_path: Path) -> None:
    directory, made = sink(tmp_path, layout(ExportFormat.ARROW), 5)
    write_all(made, rows(6, [1_000, 2_000]))
    made.finish(20)
    directory.close()
    (name,) = files(tmp_path)
    with pa.ipc.open_file(str(tmp_path / name)) as file:
        assert (file.schema.metadata or {})[b"tierd.from_offset"] == b"5"
        assert dict(file.get_batch_with_custom_metadata(0)[1]) == {b"tierd.next_offset": b"8"}


def test_json_lines_have_the_form_of_cat(tmp_path: Path) -> None:
    directory, made = sink(tmp_path, layout(ExportFormat.JSONL))
    write_all(made, rows(0, [1_700_000_000_000]))
    made.finish()
    directory.close()
    (name,) = files(tmp_path)
    assert (tmp_path / name).read_text() == (
        '{"offset":0,"timestamp":1700000000000,"timestampType":"CreateTime","key":"aw==","value":"dg==",'
        '"headers":[["h",null]],"leaderEpoch":-1}\n'
    )


def test_folders_have_the_values_and_files_lack_the_columns(tmp_path: Path) -> None:
    form = layout(folders=(ExportFolder.TOPIC, ExportFolder.DATE, ExportFolder.PARTITION))
    directory, made = sink(tmp_path, form)
    write_all(made, rows(0, [DAY_MS * 19_000 - 1, DAY_MS * 19_000]))
    made.finish()
    directory.close()
    assert files(tmp_path) == [
        f"topic=orders/date=2022-01-07/partition=3/{NAME.format(0, 0, 'parquet')}",
        f"topic=orders/date=2022-01-08/partition=3/{NAME.format(1, 1, 'parquet')}",
    ]
    assert pq.read_schema(tmp_path / files(tmp_path)[0]).names == [
        "key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch",
    ]  # fmt: skip
    table = ds.dataset(tmp_path, format="parquet", partitioning="hive").to_table()
    assert table.select(["topic", "partition", "offset"]).to_pylist() == [
        {"topic": "orders", "partition": 3, "offset": 0},
        {"topic": "orders", "partition": 3, "offset": 1},
    ]


TIMES_MS = st.one_of(st.integers(-5, 40).map(lambda day: day * DAY_MS), st.sampled_from([-1, 1 << 60]))


@settings(max_examples=30)
@given(st.lists(st.lists(TIMES_MS, max_size=9), max_size=6))
def test_days_in_any_order_are_each_in_their_folder_in_order_of_offsets(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    into = tmp_path_factory.mktemp("export")
    directory, made = sink(into, layout(ExportFormat.JSONL, folders=(ExportFolder.DATE,), max_rows=12))
    times: list[int] = []
    for batch in batches:
        if batch:
            write_all(made, rows(len(times), batch))
            times += batch
    made.finish()
    directory.close()
    assert all_offsets(into) == list(range(len(times)))
    for name in files(into):
        found = offsets(into / name)
        assert found == sorted(found)
        assert f"{found[0]:020d}-{found[-1]:020d}" in name
        days = {times[offset] // DAY_MS for offset in found}
        dates = {_date(day) for day in days}
        assert dates == {name.partition("/")[0].removeprefix("date=")}


def _date(day: int) -> str:
    if not 0 <= day < 2_932_897:
        return "__HIVE_DEFAULT_PARTITION__"
    return str(pa.scalar(day, pa.date32()).as_py())


def test_step_with_many_days_ends_before_it_has_too_many_files_open(tmp_path: Path) -> None:
    directory, made = sink(tmp_path, layout(folders=(ExportFolder.DATE,)))
    for day in range(40):
        write_all(made, rows(day, [day * DAY_MS]))
        assert len(staged(tmp_path)) < 16
    made.finish()
    directory.close()
    assert all_offsets(tmp_path) == list(range(40))


def test_long_name_of_a_topic_is_cut_and_keeps_its_id(tmp_path: Path) -> None:
    directory, _ = sink(tmp_path, layout())
    partition = TopicIdPartition(PARTITION.topic_id, "t" * 249, 3)
    made = RangeSink(directory, layout(folders=(ExportFolder.TOPIC,)), partition, 0)
    write_all(made, rows(0, [0]))
    made.finish()
    directory.close()
    (name,) = files(tmp_path)
    assert name == f"topic={'t' * 249}/{'t' * 150}-AAAAAAAAAAAAAAAAAAAABw-3-{0:020d}-{0:020d}.parquet"


def test_abandoned_step_leaves_no_file(tmp_path: Path) -> None:
    directory, made = sink(tmp_path, layout(folders=(ExportFolder.DATE,)))
    write_all(made, rows(0, [0, DAY_MS]))
    assert len(staged(tmp_path)) == 2
    made.abandon()
    directory.close()
    assert (files(tmp_path), staged(tmp_path)) == ([], [])
    assert made.next_offset == 0
