"""The leader's checks of a fetch, and its answers about epochs and bounds (push-replication 2.12)."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.model import EpochEndOffset, Lineage
from tierd.replication.leader.replicas.fetch_answers import (
    LedLogFacts,
    check_fetch,
    check_leader_epoch,
    epoch_end_offset,
    log_bounds,
)
from tierd.replication.model.messages import DivergingEpoch, EpochQuery, ReplicaFetch
from tierd.replication.model.push_error_code import PushErrorCode

TOPIC_ID = UUID(int=1)
LINEAGE = Lineage.of([(0, 0), (1, 85), (3, 90), (4, 98)])
LOG = LedLogFacts(0, 120, LINEAGE)


def fetch(offset: int, last_epoch: int) -> ReplicaFetch:
    return ReplicaFetch(
        topic_id=TOPIC_ID,
        partition=0,
        current_leader_epoch=5,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        max_bytes=1000,
        session_id=0,
    )


def query(epoch: int = -1) -> EpochQuery:
    return EpochQuery(topic_id=TOPIC_ID, partition=0, current_leader_epoch=5, epoch=epoch)


def asked(epoch: int, log: LedLogFacts = LOG) -> EpochEndOffset:
    answer = epoch_end_offset(query(epoch), log)
    assert answer.error_code == PushErrorCode.NONE
    return EpochEndOffset(answer.epoch, answer.end_offset)


@pytest.mark.spec("push-replication 79")
def test_end_of_an_epoch_is_that_of_the_nearest_epoch_at_or_below_it() -> None:
    assert asked(2) == (1, 90)
    assert asked(4) == (4, 120)
    assert asked(9) == (-1, -1)


@pytest.mark.spec("push-replication 80")
def test_end_of_an_epoch_before_the_first_one_keeps_the_asked_epoch() -> None:
    assert asked(1, LedLogFacts(0, 120, Lineage.of([(2, 50)]))) == (1, 50)


def test_end_of_no_epoch_is_unknown() -> None:
    assert asked(-1) == (-1, -1)


@pytest.mark.parametrize(
    ("current", "code"),
    [
        (4, PushErrorCode.FENCED_LEADER_EPOCH),
        (5, PushErrorCode.NONE),
        (6, PushErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_another_leader_epoch_is_fenced_or_unknown(current: int, code: PushErrorCode) -> None:
    assert check_leader_epoch(current, 5) is code


def test_fetch_from_a_log_that_is_a_prefix_is_accepted() -> None:
    assert check_fetch(fetch(95, 3), LOG) is None
    assert check_fetch(fetch(98, 3), LOG) is None
    assert check_fetch(fetch(120, 4), LOG) is None


@pytest.mark.spec("push-replication F17")
def test_fetch_above_the_end_of_its_epoch_diverges() -> None:
    assert check_fetch(fetch(100, 3), LOG) == DivergingEpoch(3, 98)


@pytest.mark.spec("push-replication F17")
def test_fetch_with_an_epoch_that_the_leader_never_had_diverges_at_the_epoch_below() -> None:
    assert check_fetch(fetch(89, 2), LOG) == DivergingEpoch(1, 90)


def test_fetch_with_an_epoch_above_all_of_the_leader_is_out_of_range() -> None:
    assert check_fetch(fetch(100, 9), LOG) is PushErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_below_the_log_start_is_out_of_range_before_it_diverges() -> None:
    log = LedLogFacts(95, 120, LINEAGE.truncated_from_start(95))
    assert check_fetch(fetch(94, 2), log) is PushErrorCode.OFFSET_OUT_OF_RANGE
    assert check_fetch(fetch(94, 3), log) is PushErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_of_an_empty_log_needs_no_epoch_but_an_offset_in_the_log() -> None:
    assert check_fetch(fetch(0, -1), LOG) is None
    assert check_fetch(fetch(121, -1), LOG) is PushErrorCode.OFFSET_OUT_OF_RANGE


def test_bounds_name_the_epochs_of_the_first_and_the_last_record() -> None:
    answer = log_bounds(query(), LedLogFacts(86, 120, LINEAGE.truncated_from_start(86)))
    assert (answer.log_start_offset, answer.log_end_offset, answer.start_epoch, answer.end_epoch) == (86, 120, 1, 4)


def test_bounds_of_an_empty_log_have_no_epoch() -> None:
    answer = log_bounds(query(), LedLogFacts(120, 120, Lineage.of([(5, 120)])))
    assert (answer.log_start_offset, answer.log_end_offset, answer.start_epoch, answer.end_epoch) == (120, 120, -1, -1)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20)), min_size=1, max_size=6),
    st.data(),
)
def test_fetch_of_a_true_prefix_is_never_refused(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    epoch, offset, entries = -1, 0, list[tuple[int, int]]()
    for rise, records in steps:
        epoch += rise
        entries.append((epoch, offset))
        offset += records
    log = LedLogFacts(0, offset, Lineage.of(entries))
    end = data.draw(st.integers(1, offset))
    last_epoch = log.lineage.epoch_for(end - 1)
    assert last_epoch is not None

    assert check_fetch(fetch(end, last_epoch), log) is None
