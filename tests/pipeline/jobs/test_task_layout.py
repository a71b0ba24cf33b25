from collections.abc import Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import FINISHED, segment, step
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition
from tierd.pipeline.jobs.task_layout import (
    BUCKET_OFFSETS,
    MAX_WAVE_GROUPS,
    GroupPlace,
    bucket_count,
    bucket_ranges,
    cut_splits,
    cut_waves,
    group_places,
)
from tierd.pipeline.planning import PartitionWork, WorkKind, WorkOrder
from tierd.pipeline.planning.work_order import Group

MIB = 1 << 20


def inputs_of(partition: TopicIdPartition, sizes: Sequence[int], offsets: int) -> tuple[RemoteLogSegmentMetadata, ...]:
    rows = (
        segment(offsets * at, offsets * (at + 1) - 1, partition=partition, size_bytes=size)
        for at, size in enumerate(sizes)
    )
    return tuple(row.updated(step(row, FINISHED)) for row in rows)


def work_of(
    index: int, sizes: Sequence[int], *, groups: Sequence[tuple[int, int]] | None = None, offsets: int = 10
) -> PartitionWork:
    partition = TopicIdPartition(UUID(int=index + 1), f"topic{index}", 0)
    found = [(at, at) for at in range(len(sizes))] if groups is None else groups
    return PartitionWork(
        index=index,
        partition=partition,
        kind=WorkKind.COMPACT,
        inputs=inputs_of(partition, sizes, offsets),
        groups=tuple(Group(*group) for group in found),
        first_dirty_offset=0,
        round_end_offset=offsets * len(sizes),
        delete_retention_ms=0,
        producer_snapshot=b"",
    )


SIZES = st.lists(st.lists(st.integers(0, 300 * MIB), min_size=1, max_size=8), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 16))
def test_splits_hold_every_input_once_and_in_order(sizes: list[list[int]], parallelism: int) -> None:
    works = [work_of(index, some) for index, some in enumerate(sizes)]
    splits = cut_splits(works, parallelism=parallelism)
    places = [place for split in splits for place in split.inputs]
    assert [(place.index, place.segment) for place in places] == [
        (work.index, at) for work in works for at in range(len(work.inputs))
    ]
    assert sum(split.size_bytes for split in splits) == sum(map(sum, sizes))
    assert all(len(split.inputs) == 1 or split.size_bytes <= 256 * MIB for split in splits)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 3 * BUCKET_OFFSETS)), min_size=1), st.integers(1, 16))
def test_buckets_are_shared_by_offsets_and_each_partition_has_at_least_one(
    counts: list[tuple[int, int]], parallelism: int
) -> None:
    works = [work_of(index, [1] * segments, offsets=offsets) for index, (segments, offsets) in enumerate(counts)]
    buckets = bucket_count(works, parallelism=parallelism)
    ranges = bucket_ranges(works, buckets)
    assert buckets >= parallelism
    assert set(ranges) == {work.index for work in works}
    for work in works:
        first, count = ranges[work.index].first, ranges[work.index].count
        assert 0 <= first < first + count <= buckets
        assert sum(row.end_offset - row.start_offset + 1 for row in work.inputs) / count <= BUCKET_OFFSETS + 1


def test_groups_are_numbered_through_all_partitions() -> None:
    works = (work_of(0, [1, 1, 1], groups=[(0, 1), (2, 2)]), work_of(1, [1]))
    order = WorkOrder(run_id=UUID(int=1), now_ms=0, secret=bytes(16), partitions=works)
    assert group_places(order) == (GroupPlace(0, 0), GroupPlace(0, 1), GroupPlace(1, 0))


@given(st.lists(st.integers(0, 200), max_size=600), st.integers(1, 8))
def test_waves_keep_the_order_and_have_work_for_every_core(sizes: list[int], parallelism: int) -> None:
    groups = [(GroupPlace(0, number), size) for number, size in enumerate(sizes)]
    waves = cut_waves(groups, parallelism=parallelism, wave_bytes=100)
    assert [place for wave in waves for place in wave] == [place for place, _ in groups]
    for wave in waves[:-1]:
        assert parallelism <= len(wave) <= MAX_WAVE_GROUPS
    for wave in waves:
        size = sum(sizes[place.group] for place in wave)
        assert size <= 100 * parallelism or len(wave) == parallelism or len(wave) < parallelism
