"""Answers to questions of pull mode that do not count any more, or that bring more than records."""

import pytest

from tests.replication.follower.following import EPOCH, PARTITION, Following, batch, entry
from tests.replication.follower.model_leader import ModelLeader, catch_up
from tierd.replication.follower.rules.followed_partition import FetchStage, LeaderClaim, LeaderQuestion
from tierd.replication.follower.rules.log_facts import LogChange
from tierd.replication.follower.rules.pull_answers import take_bounds, take_change_failure, take_failure, take_fetched
from tierd.replication.follower.rules.record_runs import BadRecordsError
from tierd.replication.follower.rules.truncation_rules import LeaderBounds
from tierd.replication.model.messages import PartitionFetchResult
from tierd.replication.model.push_error_code import PushErrorCode


def asked(follower: Following) -> LeaderQuestion:
    question = follower.followed.question(follower.log.facts, now_s=follower.now_s)
    assert question is not None
    return question


def fetched(
    *batches: bytes, push_started: bool = False, end: int = -1, high_watermark: int = -1
) -> PartitionFetchResult:
    return PartitionFetchResult(
        topic_id=PARTITION.topic_id,
        partition=0,
        error_code=0,
        high_watermark=high_watermark,
        log_end_offset=end,
        push_started=push_started,
        records=batches,
    )


@pytest.mark.spec("push-replication 76")
def test_answer_to_a_fetch_is_of_no_use_after_a_session_has_begun() -> None:
    follower = Following().fill(batch(0, 10))
    question = asked(follower)
    follower.push(entry(append_offset=10, last_epoch=EPOCH, records=batch(10)))
    assert not follower.followed.is_current(question, follower.log.facts)


def test_answer_of_before_a_session_is_of_no_use_after_it() -> None:
    follower = Following().fill(batch(0, 10))
    question = asked(follower)
    follower.push(entry(append_offset=10, last_epoch=EPOCH))
    follower.push(entry(end_session=True))
    assert not follower.followed.is_current(question, follower.log.facts)


def test_answer_of_an_earlier_leader_is_of_no_use() -> None:
    follower = Following().fill(batch(0, 10))
    question = asked(follower)
    follower.followed.follow(LeaderClaim(2, 8), now_s=follower.now_s)
    follower.followed.stage = FetchStage.FETCHING
    assert not follower.followed.is_current(question, follower.log.facts)


def test_lower_high_watermark_of_a_fetch_counts() -> None:
    follower = Following().fill(batch(0, 10))
    follower.log.high_watermark = 8
    change = take_fetched(follower.followed, fetched(high_watermark=5, end=10), follower.log.facts, now_s=0)
    assert change is not None
    assert (change.high_watermark, change.needs_disk) == (5, False)


def test_incomplete_batch_at_the_end_of_a_fetch_is_left_out() -> None:
    follower = Following()
    change = take_fetched(follower.followed, fetched(batch(0, 5) + batch(5, 5)[:-1]), follower.log.facts, now_s=0)
    assert change is not None
    assert change.end_offset == 5


def test_fetched_batch_of_a_higher_epoch_than_the_leaders_is_refused() -> None:
    follower = Following()
    with pytest.raises(BadRecordsError):
        take_fetched(follower.followed, fetched(batch(0, epoch=EPOCH + 1)), follower.log.facts, now_s=0)


def test_fetch_pauses_after_the_leader_says_that_it_begins_to_push() -> None:
    follower = Following().fill(batch(0, 10))
    take_fetched(follower.followed, fetched(push_started=True), follower.log.facts, now_s=follower.now_s)
    assert follower.followed.question(follower.log.facts, now_s=follower.now_s + 0.4) is None
    assert follower.followed.question(follower.log.facts, now_s=follower.now_s + 0.5) is not None


def test_fetch_offset_out_of_range_asks_for_the_bounds_of_the_leader() -> None:
    follower = Following().fill(batch(0, 10))
    take_failure(follower.followed, PushErrorCode.OFFSET_OUT_OF_RANGE, now_s=follower.now_s)
    assert asked(follower).stage is FetchStage.OUT_OF_RANGE
    assert take_bounds(follower.followed, LeaderBounds(0, 20, EPOCH), follower.log.facts, now_s=follower.now_s) is None
    assert follower.followed.question(follower.log.facts, now_s=follower.now_s) is None
    follower.now_s += 1
    assert asked(follower).stage is FetchStage.FETCHING


def test_change_that_failed_compares_the_logs_again() -> None:
    follower = Following().fill(batch(0, 10))
    failed = LogChange(expected_end=10, end_offset=11, records=(batch(10),))
    take_change_failure(follower.followed, failed, now_s=follower.now_s)
    follower.now_s += 1
    assert asked(follower).stage is FetchStage.TRUNCATING


@pytest.mark.spec("push-replication F18")
def test_follower_of_a_leader_whose_log_was_cut_is_cut_too() -> None:
    leader = ModelLeader()
    leader.append_new(5, epoch=3, records=4)
    follower = Following()
    assert catch_up(follower.followed, leader, follower.log)
    leader.log._truncate(12)
    leader.append_new(1, epoch=4, value=b"other")
    assert catch_up(follower.followed, leader, follower.log)
    assert follower.log.content == leader.log.content


def test_follower_takes_the_gaps_of_a_cleaned_leader() -> None:
    leader = ModelLeader()
    leader.append(batch(0, 2), batch(7, 2), batch(30, 1))
    follower = Following()
    assert catch_up(follower.followed, leader, follower.log)
    assert follower.log.content == leader.log.content
    assert follower.log.log_end_offset == 31


@pytest.mark.spec("push-replication F24")
def test_log_whose_start_lies_inside_a_batch_of_the_leader_begins_at_the_base_of_the_batch() -> None:
    leader = ModelLeader()
    leader.append(batch(0, 5), batch(5, 10), batch(15, 5))
    leader.log.high_watermark = 20
    leader.log._raise_start(9)
    follower = Following()
    assert catch_up(follower.followed, leader, follower.log)
    assert follower.log.content == batch(5, 10) + batch(15, 5)
    assert follower.log.log_start_offset == 9


def test_copy_whose_new_beginning_failed_is_built_again_and_one_whose_append_failed_goes_on() -> None:
    follower = Following().fill(batch(0, 10))
    begins_again = LogChange(expected_end=10, end_offset=0, restart_at=0)
    for failed, is_known in [
        (LogChange(expected_end=10, end_offset=11, records=(batch(10),)), True),
        (begins_again, False),
    ]:
        follower.followed.sync.begin_rebuild(follower.now_s)
        take_change_failure(follower.followed, failed, now_s=follower.now_s)
        assert (follower.followed.sync.synced_at_s is not None) is is_known
