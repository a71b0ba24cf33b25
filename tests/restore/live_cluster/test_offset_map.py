"""The offset map: joined ranges, translated positions, the file."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.restore.live_cluster.test_delivery_window import numbered
from tierd.errors import RefusedError, StateDirError
from tierd.model import TopicPartition
from tierd.restore.live_cluster.batch_transform import OffsetRun
from tierd.restore.live_cluster.delivery_window import Acknowledged
from tierd.restore.live_cluster.offset_map import (
    MappedPosition,
    MappedRange,
    PartitionMap,
    RangeJoiner,
    header_line,
    range_lines,
    read_offset_map,
)

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("restored", 0)


def test_neighbouring_batches_become_one_range() -> None:
    joiner = RangeJoiner()
    for sequence in range(5):
        joiner.add(Acknowledged(numbered(sequence), 100 + sequence))

    assert joiner.take() == [MappedRange(0, 5, 100)]
    assert joiner.take() == []


def test_records_of_another_writer_and_gaps_begin_a_range() -> None:
    joiner = RangeJoiner()
    joiner.add(Acknowledged(numbered(0), 100))
    joiner.add(Acknowledged(numbered(1), 105))  # another writer has five offsets in between
    joiner.add(Acknowledged(replace(numbered(2), runs=(OffsetRun(2, 1), OffsetRun(9, 2)), record_count=3), 106))
    joiner.add(Acknowledged(numbered(20), -1))  # compaction of the target removed it

    assert joiner.take() == [MappedRange(0, 1, 100), MappedRange(1, 2, 105), MappedRange(9, 2, 107)]


@pytest.mark.parametrize(
    ("offset", "position"),
    [
        (0, MappedPosition(500, is_lowered=False)),  # before the restored log
        (10, MappedPosition(500, is_lowered=False)),
        (19, MappedPosition(509, is_lowered=False)),
        (20, MappedPosition(510, is_lowered=False)),  # in a gap: the next record
        (25, MappedPosition(510, is_lowered=False)),
        (30, MappedPosition(510, is_lowered=False)),
        (34, MappedPosition(514, is_lowered=False)),
        (35, MappedPosition(515, is_lowered=False)),  # the group had read everything
        (36, MappedPosition(515, is_lowered=True)),  # it had read what was not restored
    ],
)
def test_position_is_translated_to_that_of_the_next_restored_record(offset: int, position: MappedPosition) -> None:
    one = PartitionMap(TARGET, [MappedRange(10, 10, 500), MappedRange(30, 5, 510)])
    assert one.translated(offset) == position


@pytest.mark.parametrize(
    ("offset", "new"),
    [
        (5, 12),
        (10, 17),  # everything before the gap was read: the records at 17 to 21 are next
        (12, 17),
        (20, 17),
        (21, 23),
        (30, 32),
    ],
)
def test_position_between_two_runs_is_before_what_others_have_written_between_them(offset: int, new: int) -> None:
    one = PartitionMap(TARGET, [MappedRange(0, 10, 7), MappedRange(20, 10, 22)])
    assert one.translated(offset) == MappedPosition(new, is_lowered=False)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=10),
    st.integers(0, 80),
)
def test_no_record_behind_a_position_is_skipped_and_none_before_it_repeated(
    steps: list[tuple[int, int, int]], offset: int
) -> None:
    ranges, start, new = list[MappedRange](), 0, 0
    for gap, length, others in steps:
        ranges.append(MappedRange(start + gap, length, new + others))
        start, new = start + gap + length, new + others + length
    copies = {each.start + at: each.new_start + at for each in ranges for at in range(each.length)}

    found = PartitionMap(TARGET, ranges).translated(offset)

    assert found is not None
    assert all(copy >= found.offset for source, copy in copies.items() if source >= offset)
    assert all(copy < found.offset for source, copy in copies.items() if source < offset)
    read = [copy for source, copy in copies.items() if source < offset]
    assert not read or found.offset == max(read) + 1  # nor is a record of another producer behind the last one


def test_partition_without_records_has_no_position() -> None:
    assert PartitionMap(TARGET).translated(5) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=10))
def test_translation_keeps_the_order_of_positions(steps: list[tuple[int, int, int]]) -> None:
    ranges, start, new = list[MappedRange](), 0, 0
    for gap, length, others in steps:
        start, new = start + gap, new + others
        ranges.append(MappedRange(start, length, new))
        start, new = start + length, new + length
    one = PartitionMap(TARGET, ranges)

    found = [one.translated(offset) for offset in range(start + 3)]

    offsets = [each.offset for each in found if each is not None]
    assert len(offsets) == start + 3
    assert offsets == sorted(offsets)


def test_file_is_read_with_the_ranges_of_all_checkpoints_joined(tmp_path: Path) -> None:
    file = tmp_path / "offset-map.jsonl"
    file.write_bytes(
        header_line(source_cluster="old", target_cluster="new")
        + range_lines(SOURCE, TARGET, [MappedRange(0, 10, 100)])
        + range_lines(TopicPartition("other", 1), TopicPartition("other", 1), [MappedRange(3, 1, 0)])
        + range_lines(SOURCE, TARGET, [MappedRange(10, 5, 110), MappedRange(20, 1, 115)])
    )

    found = read_offset_map(file, target_cluster="new")

    assert found[SOURCE].target == TARGET
    assert found[SOURCE].ranges == [MappedRange(0, 15, 100), MappedRange(20, 1, 115)]
    assert found[TopicPartition("other", 1)].ranges == [MappedRange(3, 1, 0)]


def test_map_of_another_cluster_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "offset-map.jsonl"
    file.write_bytes(header_line(source_cluster="old", target_cluster="new"))
    with pytest.raises(RefusedError, match="cluster new, --to names elsewhere"):
        read_offset_map(file, target_cluster="elsewhere")


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"no json\n", b"[]\n", header_line(source_cluster="a", target_cluster="new") + b"{}\n"]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "offset-map.jsonl"
    file.write_bytes(content)
    with pytest.raises(StateDirError, match="offset map"):
        read_offset_map(file, target_cluster="new")


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateDirError, match="No such file"):
        read_offset_map(tmp_path / "missing", target_cluster="new")
