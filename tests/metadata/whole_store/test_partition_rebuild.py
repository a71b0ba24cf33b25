"""From the segments of a bucket to the metadata of a partition: decisions, without a bucket."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, STARTED, segment
from tierd.metadata import (
    BucketSegment,
    MetadataKeyFactory,
    PartitionView,
    RebuildSeverity,
    differences,
    rebuild_partition,
    rows_of,
)
from tierd.metadata.views.view_rows import load_partition
from tierd.metadata.whole_store.partition_rebuild import RebuiltPartition
from tierd.model import RemoteLogSegmentMetadata, SoftDelete

NEW_SESSION = UUID(int=0xABC)
REPLACED = SoftDelete("replaced", 5_000)
KEYS = MetadataKeyFactory("cluster")


def copied(
    start: int,
    end: int,
    *,
    number: int,
    leader_epoch: int = 5,
    at_ms: int = 0,
    epochs: dict[int, int] | int = 0,
    replaces: tuple[int, ...] = (),
    deleted: bool = False,
    reason: str = "retention_time",
) -> BucketSegment:
    metadata = segment(start, end, epochs, segment_id=UUID(int=number), leader_epoch=leader_epoch)
    return BucketSegment(
        metadata=replace(metadata, event_timestamp_ms=at_ms or number),
        replaces=frozenset(UUID(int=other) for other in replaces),
        soft_delete=SoftDelete(reason, 9_000) if deleted else None,
        deleted_ms=8_000 if deleted else -1,
        deleted_by=3 if deleted else -1,
    )


def rebuilt(*segments: BucketSegment) -> RebuiltPartition:
    return rebuild_partition(PARTITION, segments, session_id=NEW_SESSION, replaced=REPLACED)


def found(view: PartitionView, offset: int, epoch: int = 0) -> int | None:
    metadata = view.segment_for(epoch, offset)
    return None if metadata is None else metadata.segment.id.int


def kinds(partition: RebuiltPartition) -> list[tuple[str, str]]:
    return [(problem.severity.value, problem.kind) for problem in partition.problems]


def test_rebuilt_segments_are_finished_and_found() -> None:
    partition = rebuilt(copied(10, 19, number=2, epochs={0: 10, 1: 15}), copied(0, 9, number=1))
    view = partition.view
    assert [found(view, offset) for offset in (0, 9, 10, 14, 15)] == [1, 1, 2, 2, None]
    assert found(view, 15, epoch=1) == 2
    assert (view.highest_offset_for_epoch(0), view.highest_offset_for_epoch(1)) == (14, 19)
    assert {m.state for m in view.list()} == {FINISHED}
    assert partition.problems == ()
    assert view.log_start_offset is None


def test_rebuilt_claim_is_of_the_last_copying_leader_with_a_new_session() -> None:
    view = rebuilt(copied(0, 9, number=1, leader_epoch=7), copied(10, 19, number=2, leader_epoch=3)).view
    assert view.claim == (7, 1, NEW_SESSION)


def test_rebuilt_partition_without_segments_is_empty() -> None:
    assert rebuilt().view == PartitionView(PARTITION)


def test_later_of_two_equal_copies_is_found_and_both_are_kept() -> None:
    partition = rebuilt(copied(0, 9, number=1, at_ms=20), copied(0, 9, number=2, at_ms=10))
    assert found(partition.view, 5) == 1
    assert len(partition.view.list()) == 2
    assert partition.problems == ()


def test_copies_covered_by_a_longer_copy_are_no_conflict() -> None:
    """The broker's cleaner merges small segments: a later copy has the records of earlier ones."""
    merged = [copied(0, end, number=end, at_ms=100 + end) for end in (19, 29, 39)]
    partition = rebuilt(*(copied(start, start + 9, number=start + 1) for start in (0, 10, 20)), *merged)
    assert partition.problems == ()
    assert [found(partition.view, offset) for offset in (0, 39)] == [39, 39]


def test_copies_are_ordered_by_leader_epoch_before_time() -> None:
    partition = rebuilt(
        copied(0, 9, number=1, leader_epoch=6, at_ms=10), copied(0, 9, number=2, leader_epoch=5, at_ms=20)
    )
    assert found(partition.view, 5) == 1
    assert partition.problems == ()


def test_segments_of_one_leader_that_overlap_are_a_conflict_and_both_are_kept() -> None:
    partition = rebuilt(copied(0, 9, number=1), copied(5, 14, number=2))
    assert kinds(partition) == [("conflict", "overlap")]
    assert [found(partition.view, offset) for offset in (0, 4, 14)] == [1, 1, 2]


def test_overlapping_segments_of_two_leaders_are_no_conflict() -> None:
    assert rebuilt(copied(0, 9, number=1), copied(5, 14, number=2, leader_epoch=6)).problems == ()


def test_overlap_is_found_behind_a_shorter_neighbour() -> None:
    partition = rebuilt(
        copied(0, 99, number=1), copied(50, 109, number=2, leader_epoch=6), copied(90, 119, number=3, at_ms=4)
    )
    assert kinds(partition) == [("conflict", "overlap")]
    assert partition.problems[0].where == str(partition.view.segments[UUID(int=3)].segment)
    assert "offsets 90 to 99 " in partition.problems[0].what


def test_segment_with_a_tombstone_is_under_deletion_and_counts_for_the_highest_offset() -> None:
    view = rebuilt(copied(0, 9, number=1), copied(10, 19, number=2, deleted=True)).view
    gone = view.segment(UUID(int=2))
    assert gone is not None
    assert (gone.state, gone.soft_delete) == (DELETE_STARTED, SoftDelete("retention_time", 9_000))
    assert (gone.event_timestamp_ms, gone.broker_id) == (8_000, 3)
    assert found(view, 15) is None
    assert view.highest_offset_for_epoch(0) == 19
    assert len(view.list_epoch(0)) == 2


def test_segment_under_deletion_hides_no_other_segment() -> None:
    view = rebuilt(copied(0, 99, number=1, deleted=True), copied(10, 19, number=2)).view
    assert found(view, 15) == 2


def test_output_is_found_and_its_inputs_are_under_deletion() -> None:
    partition = rebuilt(
        copied(0, 9, number=1), copied(10, 19, number=2), copied(0, 19, number=3, at_ms=50, replaces=(1, 2, 99))
    )
    view = partition.view
    assert [found(view, offset) for offset in (0, 19)] == [3, 3]
    for number in (1, 2):
        replaced = view.segment(UUID(int=number))
        assert replaced is not None
        assert (replaced.state, replaced.soft_delete) == (DELETE_STARTED, REPLACED)
    assert partition.problems == ()


def test_output_that_a_later_output_replaces_is_under_deletion() -> None:
    view = rebuilt(
        copied(0, 9, number=1),
        copied(0, 9, number=2, at_ms=50, replaces=(1,)),
        copied(0, 9, number=3, at_ms=60, replaces=(2,)),
    ).view
    assert found(view, 5) == 3
    assert {m.segment.id.int for m in view.list() if m.state is DELETE_STARTED} == {1, 2}


def test_output_of_the_higher_leader_epoch_is_found_when_two_have_the_same_inputs() -> None:
    partition = rebuilt(
        copied(0, 9, number=1),
        copied(0, 9, number=2, leader_epoch=6, replaces=(1,)),
        copied(0, 9, number=3, leader_epoch=5, at_ms=1_000, replaces=(1,)),
    )
    assert found(partition.view, 5) == 2
    assert partition.view.segment(UUID(int=3)) is None
    assert kinds(partition) == [("conflict", "replaced twice")]


def test_abandoned_output_replaces_no_segment() -> None:
    partition = rebuilt(copied(0, 9, number=1), copied(0, 9, number=2, replaces=(1,), deleted=True))
    assert found(partition.view, 5) == 1


def test_inputs_of_a_replaced_output_stay_replaced() -> None:
    """A crash left the inputs of the first generation without tombstones, while their output has one."""
    partition = rebuilt(
        copied(0, 9, number=1),
        copied(10, 19, number=2),
        copied(0, 19, number=3, at_ms=50, replaces=(1, 2), deleted=True, reason="replaced"),
        copied(0, 19, number=4, at_ms=60, replaces=(3,)),
    )
    assert {m.segment.id.int for m in partition.view.list() if m.state is FINISHED} == {4}
    assert partition.problems == ()


def test_output_of_a_fenced_leader_loses_against_one_that_was_replaced_later() -> None:
    partition = rebuilt(
        copied(0, 9, number=1),
        copied(0, 9, number=2, leader_epoch=5, at_ms=90, replaces=(1,)),
        copied(0, 9, number=3, leader_epoch=6, at_ms=50, replaces=(1,), deleted=True, reason="replaced"),
        copied(0, 9, number=4, leader_epoch=6, at_ms=60, replaces=(3,)),
    )
    assert found(partition.view, 5) == 4
    assert {m.segment.id.int for m in partition.view.list() if m.state is FINISHED} == {4}
    assert kinds(partition) == [("conflict", "replaced twice")]


def test_output_without_its_commit_is_found_and_its_inputs_keep_their_grace_time() -> None:
    """The manifest was the last object before a crash: the bucket does not show whether the output was committed."""
    partition = rebuilt(copied(0, 9, number=1), copied(10, 19, number=2), copied(0, 19, number=3, replaces=(1, 2)))
    assert [found(partition.view, offset) for offset in (0, 19)] == [3, 3]
    assert {m.soft_delete for m in partition.view.list() if m.state is DELETE_STARTED} == {REPLACED}


def test_input_that_expired_before_its_output_keeps_its_own_deletion_reason() -> None:
    view = rebuilt(
        copied(0, 9, number=1, deleted=True), copied(10, 19, number=2), copied(0, 19, number=3, replaces=(1, 2))
    ).view
    one = view.segment(UUID(int=1))
    assert one is not None
    assert one.soft_delete == SoftDelete("retention_time", 9_000)
    assert found(view, 15) == 3


def test_output_with_an_empty_log_is_found() -> None:
    empty = copied(0, 19, number=3, replaces=(1, 2))
    empty = replace(empty, metadata=replace(empty.metadata, size_bytes=0))
    partition = rebuilt(copied(0, 9, number=1), copied(10, 19, number=2), empty)
    assert [found(partition.view, offset) for offset in (0, 19)] == [3, 3]
    assert partition.view.highest_offset_for_epoch(0) == 19
    assert partition.problems == ()


def test_output_whose_inputs_were_replaced_by_another_is_left_out_without_losing_offsets() -> None:
    partition = rebuilt(
        copied(0, 9, number=1),
        copied(10, 19, number=2),
        copied(20, 29, number=3),
        copied(0, 19, number=4, at_ms=50, replaces=(1, 2)),
        copied(10, 29, number=5, at_ms=60, replaces=(2, 3)),
    )
    assert [found(partition.view, offset) for offset in (5, 15, 25)] == [1, 5, 5]
    assert kinds(partition) == [("conflict", "replaced twice")]


@pytest.mark.parametrize("replaces", [(1,), (2,)])
def test_output_that_replaces_itself_or_a_later_segment_is_a_conflict(replaces: tuple[int, ...]) -> None:
    partition = rebuilt(copied(0, 9, number=1, replaces=replaces), copied(10, 19, number=2))
    assert kinds(partition) == [("conflict", "replaces later")]
    assert [found(partition.view, offset) for offset in (5, 15)] == [1, 2]


segments_found = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 20),
        st.integers(0, 3),
        st.integers(4, 7),
        st.integers(0, 50),
        st.booleans(),
        st.lists(st.integers(1, 12), max_size=2),
    ),
    max_size=12,
)


def segments_of(rows: list[tuple[int, int, int, int, int, bool, list[int]]]) -> list[BucketSegment]:
    return [
        copied(
            start,
            start + length,
            number=number,
            epochs={0: start, 1: start + split} if 0 < split <= length else 0,
            leader_epoch=leader_epoch,
            at_ms=at_ms + 1,
            deleted=deleted,
            replaces=tuple(replaces),
        )
        for number, (start, length, split, leader_epoch, at_ms, deleted, replaces) in enumerate(rows, start=1)
    ]


@given(segments_found)
def test_every_offset_of_a_finished_segment_is_found_in_any_order_of_segments(
    rows: list[tuple[int, int, int, int, int, bool, list[int]]],
) -> None:
    segments = segments_of(rows)
    partition = rebuilt(*segments)
    view = partition.view
    for metadata in view.list():
        if metadata.state is FINISHED:
            for epoch, first in metadata.segment_leader_epochs:
                for offset in range(first, metadata.epoch_end(epoch) + 1):
                    assert view.segment_for(epoch, offset) is not None
    assert rebuilt(*reversed(segments)) == partition
    left_out = {s.metadata.segment.id for s in segments} - set(view.segments)
    assert len(left_out) == kinds(partition).count(("conflict", "replaced twice"))


@given(segments_found)
def test_rebuilt_rows_load_to_the_rebuilt_view(rows: list[tuple[int, int, int, int, int, bool, list[int]]]) -> None:
    view = rebuilt(*segments_of(rows)).view
    loaded = load_partition(PARTITION, sorted(rows_of(view, KEYS).items()), KEYS)
    assert loaded.repairs == ()
    assert loaded.view == replace(view, row=None)


def with_segments(*metadata: RemoteLogSegmentMetadata) -> PartitionView:
    return PartitionView(PARTITION, segments={each.segment.id: each for each in metadata})


def test_differences_of_stores_ignore_broker_session_and_event_time() -> None:
    one = replace(segment(0, 9, segment_id=UUID(int=1)), state=FINISHED)
    assert differences(with_segments(one), with_segments(replace(one, broker_id=9, event_timestamp_ms=1))) == []
    adopted = replace(one, leader_epoch=9, session_id=UUID(int=9))
    assert differences(with_segments(adopted), with_segments(one)) == []
    assert "another one" in differences(with_segments(one), with_segments(replace(one, end_offset=8)))[0]
    assert "not in the bucket" in differences(with_segments(one), with_segments())[0]
    assert "not in the metadata store" in differences(with_segments(), with_segments(one))[0]
    unfinished = replace(one, state=STARTED)
    assert differences(with_segments(unfinished), with_segments()) == []
    assert RebuildSeverity.NOTE.value == "note"


generations = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans(), st.booleans()), max_size=6)


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6), generations)
def test_rebuilt_lookups_equal_those_of_the_live_metadata_after_any_replacements(
    links: list[tuple[int, bool]], runs: list[tuple[int, int, bool, bool]]
) -> None:
    """Generations of outputs are built; the inputs of each may have tombstones, and may have lost their objects."""
    bucket: dict[int, BucketSegment] = {}
    chain: list[int] = []
    offset, epoch = 0, 0
    for length, rolls in links:
        epochs = {epoch: offset}
        if rolls and length > 1:
            epoch += 1
            epochs[epoch] = offset + 1
        number = len(bucket) + 1
        bucket[number] = copied(offset, offset + length - 1, number=number, epochs=epochs)
        chain.append(number)
        offset += length
    view = rebuilt(*bucket.values()).view
    total = len(bucket)
    for first, count, is_marked, is_gone in runs:
        numbers = chain[first % len(chain) :][:count]
        inputs = [view.segments[UUID(int=number)] for number in numbers]
        total += 1
        starts = {entry.epoch: entry.start_offset for m in reversed(inputs) for entry in m.segment_leader_epochs}
        output = copied(
            inputs[0].start_offset,
            inputs[-1].end_offset,
            number=total,
            at_ms=total * 10,
            epochs={each: starts[each] for each in sorted(starts)},
            replaces=tuple(numbers),
        )
        bucket[total] = output
        view = view.with_added(output.metadata).view
        done = replace(output.metadata, state=FINISHED)
        view = view.with_replaced(done, inputs, soft_delete=REPLACED, compacted_to=None).view
        index = chain.index(numbers[0])
        chain[index : index + len(numbers)] = [total]
        going = set(bucket) - set(chain) if is_gone else set(numbers) if is_marked else set()
        for number in going:  # expiration marks all segments that it finds before it deletes one
            bucket[number] = replace(bucket[number], soft_delete=REPLACED, deleted_ms=1, deleted_by=1)
        for number in numbers if is_gone else ():
            del bucket[number]
    again = rebuilt(*bucket.values())
    assert again.problems == ()
    for each in range(epoch + 1):
        assert [found(again.view, at, each) for at in range(offset + 1)] == [
            found(view, at, each) for at in range(offset + 1)
        ]
        assert again.view.highest_offset_for_epoch(each) == view.highest_offset_for_epoch(each)
    assert {m.segment.id.int for m in again.view.list() if m.state is FINISHED} == set(chain)
