from dataclasses import replace
from uuid import UUID

import pytest

from tests.fakes.remote_segments import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    PARTITION,
    STARTED,
    segment,
    step,
)
from tierd.errors import InvalidMetadataError, InvalidSegmentTransitionError, RemoteResourceNotFoundError
from tierd.metadata import Claim, PartitionRow, PartitionView
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition

ROW = PartitionRow(topic="orders", revision=1, claim=Claim(5, 1, UUID(int=9)))
EMPTY = PartitionView(PARTITION, ROW)
PATHS: dict[RemoteLogSegmentState, list[RemoteLogSegmentState]] = {
    STARTED: [],
    FINISHED: [FINISHED],
    DELETE_STARTED: [FINISHED, DELETE_STARTED],
    DELETE_FINISHED: [FINISHED, DELETE_STARTED, DELETE_FINISHED],
}


def with_segment(
    view: PartitionView, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
) -> PartitionView:
    view = view.with_added(metadata).view
    for target in PATHS[state]:
        view = view.with_updated(step(metadata, target)).view
    return view


def with_finished(*segments: RemoteLogSegmentMetadata) -> PartitionView:
    view = EMPTY
    for metadata in segments:
        view = with_segment(view, metadata, FINISHED)
    return view


@pytest.mark.spec("remote-tiering 2")
@pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED, DELETE_FINISHED])
def test_only_a_copy_that_begins_may_be_added(state: RemoteLogSegmentState) -> None:
    with pytest.raises(ValueError, match="not COPY_SEGMENT_STARTED") as caught:
        EMPTY.with_added(replace(segment(0, 9), state=state))
    assert isinstance(caught.value, InvalidMetadataError)
    assert EMPTY.list() == ()


@pytest.mark.spec("remote-tiering 4")
@pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED, DELETE_FINISHED])
def test_an_update_of_an_unknown_segment_is_not_found(state: RemoteLogSegmentState) -> None:
    with pytest.raises(RemoteResourceNotFoundError, match="no such segment"):
        EMPTY.with_updated(step(segment(0, 9), state))


@pytest.mark.spec("remote-tiering 6")
@pytest.mark.spec("remote-tiering 8")
@pytest.mark.spec("remote-tiering 11")
@pytest.mark.parametrize(
    ("present", "target"), [(STARTED, DELETE_FINISHED), (FINISHED, DELETE_FINISHED), (DELETE_STARTED, FINISHED)]
)
def test_illegal_step_is_refused_and_the_segment_keeps_its_state(
    present: RemoteLogSegmentState, target: RemoteLogSegmentState
) -> None:
    metadata = segment(0, 9, 5)
    view = with_segment(EMPTY, metadata, present)
    with pytest.raises(InvalidSegmentTransitionError):
        view.with_updated(step(metadata, target))
    assert [listed.state for listed in view.list_epoch(5)] == [present]


@pytest.mark.spec("remote-tiering 7")
@pytest.mark.spec("remote-tiering 10")
@pytest.mark.spec("remote-tiering 13")
@pytest.mark.parametrize(
    ("state", "listed"), [(FINISHED, [FINISHED]), (DELETE_STARTED, [DELETE_STARTED]), (DELETE_FINISHED, [])]
)
def test_segment_is_listed_in_its_new_state_after_a_legal_step(
    state: RemoteLogSegmentState, listed: list[RemoteLogSegmentState]
) -> None:
    view = with_segment(EMPTY, segment(0, 9, 5), state)
    assert [metadata.state for metadata in view.list_epoch(5)] == listed
    assert [metadata.state for metadata in view.list()] == listed


@pytest.mark.spec("remote-tiering 9")
@pytest.mark.spec("remote-tiering 12")
@pytest.mark.parametrize("present", list(RemoteLogSegmentState))
def test_update_to_the_started_state_is_refused_from_any_state(present: RemoteLogSegmentState) -> None:
    metadata = segment(0, 9)
    view = with_segment(EMPTY, metadata, present)
    with pytest.raises(ValueError, match="only adding"):
        view.with_updated(step(metadata, STARTED))


@pytest.mark.parametrize(
    ("state", "found", "highest"),
    [(STARTED, False, None), (FINISHED, True, 9), (DELETE_STARTED, False, 9), (DELETE_FINISHED, False, 9)],
)
def test_segment_is_found_in_the_finished_state_only(
    state: RemoteLogSegmentState, found: bool, highest: int | None
) -> None:
    view = with_segment(EMPTY, segment(0, 9), state)
    assert (view.segment_for(0, 5) is not None) is found
    assert view.highest_offset_for_epoch(0) == highest


@pytest.mark.spec("remote-tiering 101")
@pytest.mark.parametrize("target", [DELETE_STARTED, DELETE_FINISHED])
def test_repeated_deletion_succeeds_and_changes_nothing(target: RemoteLogSegmentState) -> None:
    metadata = segment(0, 9)
    view = with_segment(EMPTY, metadata, DELETE_FINISHED)
    change = view.with_updated(step(metadata, target))
    assert change.is_empty()
    assert change.view is view
    with pytest.raises(InvalidSegmentTransitionError):
        view.with_updated(step(metadata, FINISHED))


@pytest.mark.spec("remote-tiering 102")
def test_repeated_add_succeeds_and_another_segment_with_its_id_is_refused() -> None:
    metadata = segment(0, 9)
    view = EMPTY.with_added(metadata).view
    assert view.with_added(metadata).is_empty()
    with pytest.raises(ValueError, match="exists already") as caught:
        view.with_added(replace(metadata, end_offset=10))
    assert isinstance(caught.value, InvalidMetadataError)
    assert "fresh segment id" in caught.value.remedy


@pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED, DELETE_FINISHED])
def test_add_of_a_segment_that_left_the_started_state_is_refused(state: RemoteLogSegmentState) -> None:
    metadata = segment(0, 9)
    with pytest.raises(InvalidMetadataError, match="exists already"):
        with_segment(EMPTY, metadata, state).with_added(metadata)


def test_a_segment_of_another_partition_is_refused() -> None:
    other = TopicIdPartition(PARTITION.topic_id, PARTITION.topic, 1)
    with pytest.raises(InvalidMetadataError):
        EMPTY.with_added(segment(0, 9, partition=other))
    with pytest.raises(InvalidMetadataError):
        EMPTY.with_updated(step(segment(0, 9, partition=other), FINISHED))


def test_repeated_step_writes_nothing() -> None:
    metadata = segment(0, 9)
    view = with_segment(EMPTY, metadata, FINISHED)
    assert view.with_updated(step(metadata, FINISHED)).is_empty()


@pytest.mark.spec("remote-tiering 38")
def test_second_finish_replaces_the_custom_metadata() -> None:
    metadata = segment(0, 9)
    view = with_segment(EMPTY, metadata, FINISHED)
    view = view.with_updated(step(metadata, FINISHED, custom_metadata=b"new")).view
    found = view.segment_for(0, 5)
    assert found is not None
    assert found.custom_metadata == b"new"
    assert view.list_epoch(0) == (found,)


def test_view_is_immutable() -> None:
    metadata = segment(0, 9)
    begun = EMPTY.with_added(metadata).view
    done = begun.with_updated(step(metadata, FINISHED)).view
    assert (EMPTY.list(), begun.segment_for(0, 5)) == ((), None)
    assert done.segment_for(0, 5) is not None


SEG0 = segment(0, 100, {0: 0, 1: 20, 2: 80})
SEG1 = segment(101, 200, {2: 101})
SEG2 = segment(201, 300, {2: 201, 3: 240})
SEG3 = segment(250, 400, {3: 250, 4: 370})


@pytest.mark.parametrize(
    ("epoch", "offset", "expected"),
    [
        pytest.param(1, 40, SEG0, marks=pytest.mark.spec("remote-tiering 43")),
        pytest.param(2, 110, SEG1, marks=pytest.mark.spec("remote-tiering 44")),
        pytest.param(3, 240, SEG2, marks=pytest.mark.spec("remote-tiering 45")),
        pytest.param(3, 250, SEG3, marks=pytest.mark.spec("remote-tiering 46")),
        pytest.param(4, 375, SEG3, marks=pytest.mark.spec("remote-tiering 47")),
        pytest.param(1, 110, None, marks=pytest.mark.spec("remote-tiering 48")),
        pytest.param(4, 401, None, marks=pytest.mark.spec("remote-tiering 49")),
        pytest.param(5, 301, None, marks=pytest.mark.spec("remote-tiering 50")),
    ],
)
def test_a_lookup_needs_the_epoch_that_wrote_the_offset(
    epoch: int, offset: int, expected: RemoteLogSegmentMetadata | None
) -> None:
    found = with_finished(SEG0, SEG1, SEG2, SEG3).segment_for(epoch, offset)
    assert (found and found.segment) == (expected and expected.segment)


@pytest.mark.spec("remote-tiering 51")
@pytest.mark.spec("remote-tiering 52")
def test_highest_offset_of_an_epoch_stays_after_its_segments_are_deleted() -> None:
    view = with_finished(SEG0, SEG1, SEG2, SEG3).with_updated(step(SEG0, DELETE_STARTED)).view
    assert view.segment_for(0, 10) is None
    view = view.with_updated(step(SEG0, DELETE_FINISHED)).view
    assert view.segment_for(0, 10) is None
    assert [view.highest_offset_for_epoch(epoch) for epoch in range(6)] == [19, 79, 239, 369, 400, None]


@pytest.mark.spec("remote-tiering 53")
def test_epoch_lists_every_segment_that_has_it() -> None:
    segments = [segment(0, 100), segment(101, 200), segment(201, 400, {0: 201, 1: 301})]
    view = with_finished(*segments)
    ids = [metadata.segment for metadata in segments]
    assert [metadata.segment for metadata in view.list_epoch(0)] == ids
    assert [metadata.segment for metadata in view.list_epoch(1)] == ids[2:]
    assert {metadata.segment for metadata in view.list()} == set(ids)


@pytest.mark.spec("remote-tiering 54")
def test_a_list_keeps_its_order_while_segments_are_deleted_one_by_one() -> None:
    segments = [segment(n * 10, n * 10 + 9) for n in range(6)]
    view = with_finished(*segments)
    for metadata in (segments[n] for n in (3, 0, 5, 1, 4, 2)):
        view = view.with_updated(step(metadata, DELETE_STARTED)).view
        assert [listed.start_offset for listed in view.list_epoch(0)] == [0, 10, 20, 30, 40, 50]


@pytest.mark.spec("remote-tiering 61")
@pytest.mark.spec("remote-tiering 62")
@pytest.mark.spec("remote-tiering 63")
def test_size_of_an_epoch_counts_every_segment_that_has_it() -> None:
    one_epoch = [segment(n * 10, n * 10 + 9, 7, size_bytes=n + 1) for n in range(3)]
    assert with_finished(*one_epoch).size_of_epoch(7) == 6
    each_its_own = [segment(n * 10, n * 10 + 9, n, size_bytes=n + 1) for n in range(3)]
    assert [with_finished(*each_its_own).size_of_epoch(epoch) for epoch in range(4)] == [1, 2, 3, 0]


def test_epoch_of_one_failed_copy_is_dropped_with_the_copy() -> None:
    metadata = segment(0, 9, 5)
    view = EMPTY.with_added(metadata).view
    view = view.with_updated(step(metadata, DELETE_STARTED)).view
    view = view.with_updated(step(metadata, DELETE_FINISHED)).view
    assert view.epochs == {}
    assert view.highest_offset_for_epoch(5) is None


def test_log_start_offset_does_not_move_back() -> None:
    view = EMPTY.with_log_start_offset(40).view
    assert (EMPTY.log_start_offset, view.log_start_offset) == (None, 40)
    assert view.with_log_start_offset(40).is_empty()
    assert view.with_log_start_offset(39).is_empty()


def test_tombstones_expire_oldest_first_in_bounded_numbers() -> None:
    view = EMPTY
    segments = [segment(n * 10, n * 10 + 9) for n in range(4)]
    for time_ms, metadata in enumerate(segments):
        view = with_segment(view, metadata, DELETE_STARTED)
        view = view.with_updated(step(metadata, DELETE_FINISHED, event_timestamp_ms=time_ms)).view
    ids = [metadata.segment.id for metadata in segments]
    assert view.expired_tombstones(3, limit=2) == (ids[0], ids[1])
    assert view.expired_tombstones(3, limit=9) == (ids[0], ids[1], ids[2])
    assert list(view.without_tombstones(ids[:2]).tombstones) == ids[2:]
    assert view.list() == ()
