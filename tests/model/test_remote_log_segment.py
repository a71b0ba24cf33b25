from dataclasses import FrozenInstanceError, replace
from itertools import product

import pytest

from tests.fakes.remote_segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, STARTED, segment, step
from tierd.errors import InvalidMetadataError, InvalidSegmentTransitionError
from tierd.model import RemoteLogSegmentState

LEGAL = {
    (STARTED, FINISHED),
    (STARTED, DELETE_STARTED),
    (FINISHED, DELETE_STARTED),
    (DELETE_STARTED, DELETE_FINISHED),
    *((state, state) for state in RemoteLogSegmentState),
}


@pytest.mark.parametrize(("present", "target"), list(product(RemoteLogSegmentState, repeat=2)))
def test_only_the_steps_of_the_lifecycle_are_allowed(
    present: RemoteLogSegmentState, target: RemoteLogSegmentState
) -> None:
    assert present.may_become(target) is ((present, target) in LEGAL)


def test_numbers_of_the_segment_states_are_those_of_kafka() -> None:
    assert [state.value for state in (STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED)] == [0, 1, 2, 3]


def test_error_of_an_illegal_step_names_present_state_and_target() -> None:
    deleting = replace(segment(0, 9), state=DELETE_STARTED)
    with pytest.raises(InvalidSegmentTransitionError, match="DELETE_SEGMENT_STARTED, cannot become COPY_SEGMENT_F"):
        deleting.require_step(FINISHED)
    deleting.require_step(DELETE_FINISHED)


@pytest.mark.spec("remote-tiering 15")
@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4)])
def test_offsets_that_are_no_range_are_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="no range") as caught:
        segment(start, end, {0: 0})
    assert isinstance(caught.value, InvalidMetadataError)


@pytest.mark.spec("remote-tiering 15")
def test_a_segment_without_epochs_is_refused() -> None:
    with pytest.raises(InvalidMetadataError, match="at least one leader epoch"):
        segment(0, 5, {})


@pytest.mark.parametrize("epochs", [{0: 10}, {0: 15}, {0: 10, 3: 15}, {0: 12, 1: 12, 4: 19}])
def test_epochs_that_begin_inside_the_segment_are_accepted(epochs: dict[int, int]) -> None:
    assert segment(10, 19, epochs).first_readable_offset == epochs[0]


@pytest.mark.parametrize("epochs", [{0: 9}, {0: 20}, {3: 10, 1: 15}, {0: 15, 1: 14}, {-1: 10}, {2**31: 10}])
def test_epochs_that_contradict_the_segment_are_refused(epochs: dict[int, int]) -> None:
    with pytest.raises(InvalidMetadataError, match="not those of a segment with offsets 10-19"):
        segment(10, 19, epochs)


@pytest.mark.spec("remote-tiering 16")
def test_an_update_without_custom_metadata_erases_it() -> None:
    begun = segment(0, 9, custom_metadata=b"key")
    assert begun.updated(step(begun, FINISHED)).custom_metadata is None
    assert begun.updated(step(begun, FINISHED, custom_metadata=b"other")).custom_metadata == b"other"


def test_advancing_keeps_the_custom_metadata() -> None:
    begun = segment(0, 9, custom_metadata=b"key")
    update = begun.advance(DELETE_STARTED, event_timestamp_ms=7, broker_id=2)
    deleting = begun.updated(update)
    assert (deleting.custom_metadata, deleting.state, deleting.event_timestamp_ms, deleting.broker_id) == (
        b"key",
        DELETE_STARTED,
        7,
        2,
    )


@pytest.mark.spec("remote-tiering 17")
def test_update_keeps_the_flag_of_an_empty_transaction_index() -> None:
    begun = segment(0, 9, txn_index_empty=True)
    assert begun.updated(step(begun, FINISHED)).txn_index_empty


@pytest.mark.spec("remote-tiering 18")
def test_an_update_of_another_segment_is_refused() -> None:
    with pytest.raises(ValueError, match="applied to"):
        segment(0, 9).updated(step(segment(0, 9), FINISHED))


def test_update_changes_only_state_and_event_time() -> None:
    begun = segment(3, 90, {1: 3, 4: 20})
    finished = begun.updated(step(begun, FINISHED))
    same = replace(finished, state=begun.state, event_timestamp_ms=begun.event_timestamp_ms)
    assert same == begun
    assert finished != begun


def test_segment_metadata_is_immutable() -> None:
    begun = segment(0, 9)
    with pytest.raises(FrozenInstanceError):
        begun.state = FINISHED  # type: ignore[misc]  # the point of the test
    assert isinstance(begun.segment_leader_epochs, tuple)


@pytest.mark.parametrize(("epoch", "end"), [(0, 19), (1, 79), (2, 100)])
def test_an_epoch_ends_where_the_next_one_begins_or_with_the_segment(epoch: int, end: int) -> None:
    assert segment(0, 100, {0: 0, 1: 20, 2: 80}).epoch_end(epoch) == end


def test_epoch_without_offsets_ends_before_it_begins() -> None:
    begun = segment(100, 200, {1: 100, 2: 100})
    assert (begun.epoch_end(1), begun.epoch_end(2)) == (99, 200)
