"""Truncation rules of a follower (push-replication 2.12), one decision at a time."""

import pytest

from tests.fakes.memory_follower_log import MemoryFollowerLog
from tests.replication.follower.following import Following, batch
from tests.replication.follower.model_leader import ModelLeader, catch_up
from tierd.model import EpochEndOffset, Lineage
from tierd.replication.follower.rules.followed_partition import FetchStage, QuestionKind
from tierd.replication.follower.rules.log_facts import FollowerLogFacts, LogChange
from tierd.replication.follower.rules.pull_answers import (
    loses_every_record,
    rebuild_if_cleaned,
    take_epoch_end,
    take_fetched,
)
from tierd.replication.follower.rules.truncation_rules import (
    KeepLog,
    LeaderBounds,
    RestartAt,
    Truncation,
    resolve_out_of_range,
    truncate_by_epoch,
)
from tierd.replication.model.messages import DivergingEpoch, PartitionFetchResult


def log_of(*entries: tuple[int, int], end: int, start: int = 0, high_watermark: int = 0) -> FollowerLogFacts:
    return FollowerLogFacts(
        log_start_offset=start, log_end_offset=end, high_watermark=high_watermark, lineage=Lineage.of(entries)
    )


@pytest.mark.spec("push-replication 79")
@pytest.mark.parametrize(("epoch", "expected"), [(2, (1, 90)), (4, (4, 120)), (9, (-1, -1)), (-1, (-1, -1))])
def test_end_of_an_epoch_is_that_of_the_nearest_lower_epoch(epoch: int, expected: tuple[int, int]) -> None:
    log = log_of((0, 0), (1, 85), (3, 90), (4, 98), end=120)
    assert log.end_offset_for(epoch) == expected


@pytest.mark.spec("push-replication 80")
def test_end_of_an_epoch_below_all_known_ones_is_where_the_first_one_begins() -> None:
    assert log_of((2, 50), end=60).end_offset_for(1) == (1, 50)


@pytest.mark.spec("push-replication 81")
def test_log_is_truncated_to_the_smaller_end_of_the_same_epoch() -> None:
    log = log_of((3, 20), end=45)
    assert truncate_by_epoch(EpochEndOffset(3, 40), log, held_offset=0) == Truncation(40, is_done=True)
    assert truncate_by_epoch(EpochEndOffset(3, 50), log, held_offset=0) == Truncation(45, is_done=True)


@pytest.mark.spec("push-replication 82")
def test_epoch_that_the_follower_lacks_truncates_to_its_lower_epoch_and_asks_again() -> None:
    log = log_of((1, 0), (2, 20), (5, 40), end=60)
    assert truncate_by_epoch(EpochEndOffset(4, 55), log, held_offset=0) == Truncation(40, is_done=False)


def test_follower_asks_for_the_epoch_that_is_last_after_a_truncation() -> None:
    follower = Following().fill(batch(0, 20, epoch=2), batch(20, 20, epoch=5))
    follower.followed.stage = FetchStage.TRUNCATING
    follower.log.change(take_epoch_end(follower.followed, EpochEndOffset(4, 55), follower.log.facts))
    question = follower.followed.question(follower.log.facts, now_s=follower.now_s)
    assert question is not None
    assert (question.kind, question.epoch) == (QuestionKind.EPOCH_END, 2)


def test_leader_that_knows_nothing_truncates_to_the_held_offset() -> None:
    log = log_of((3, 0), end=45, high_watermark=30)
    assert truncate_by_epoch(EpochEndOffset(-1, -1), log, held_offset=30) == Truncation(30, is_done=True)


def test_leader_that_knows_an_end_without_an_epoch_truncates_to_the_end() -> None:
    assert truncate_by_epoch(EpochEndOffset(-1, 40), log_of((3, 0), end=45), held_offset=0) == Truncation(
        40, is_done=True
    )


@pytest.mark.spec("push-replication 83")
def test_truncation_at_the_log_end_keeps_the_data_and_drops_the_epoch_without_records() -> None:
    follower = Following().fill(batch(0, 10, epoch=3))
    follower.log.lineage = follower.log.lineage.assign(epoch=4, start_offset=10)
    follower.followed.stage = FetchStage.TRUNCATING
    follower.log.change(take_epoch_end(follower.followed, EpochEndOffset(3, 10), follower.log.facts))
    assert follower.log.content == batch(0, 10, epoch=3)
    assert follower.log.lineage.entries == ((3, 0),)


@pytest.mark.spec("push-replication 84")
def test_diverging_answer_truncates_and_its_watermark_and_records_do_not_count() -> None:
    follower = Following().fill(batch(0, 10, epoch=2), batch(10, 10, epoch=3))
    follower.log.high_watermark = 5
    answer = PartitionFetchResult(
        topic_id=follower.followed.partition.topic_id,
        partition=0,
        error_code=0,
        high_watermark=8,
        log_start_offset=7,
        log_end_offset=50,
        diverging=DivergingEpoch(2, 9),
        records=[batch(20)],
    )
    change = take_fetched(follower.followed, answer, follower.log.facts, now_s=follower.now_s)
    assert change == LogChange(expected_end=20, end_offset=9, truncate_to=9)
    follower.log.change(change)
    assert (follower.log.log_end_offset, follower.log.high_watermark, follower.log.log_start_offset) == (9, 5, 0)


@pytest.mark.spec("push-replication 85")
def test_log_below_the_leaders_start_begins_again_at_the_leaders_start() -> None:
    log = log_of((3, 0), end=45)
    assert resolve_out_of_range(LeaderBounds(60, 100, 3), log) == RestartAt(60)


def test_log_above_the_leaders_end_is_truncated_to_the_leaders_end() -> None:
    assert resolve_out_of_range(LeaderBounds(0, 40, 3), log_of((3, 0), end=45)) == Truncation(40, is_done=True)


def test_log_that_ends_where_an_emptied_leader_without_epochs_begins_drops_what_the_leader_deleted() -> None:
    assert resolve_out_of_range(LeaderBounds(45, 45, -1), log_of((3, 0), end=45)) == RestartAt(45)
    assert resolve_out_of_range(LeaderBounds(45, 45, -1), log_of(end=45, start=45)) == KeepLog()


@pytest.mark.parametrize(
    ("change", "leader_end", "is_lost"),
    [
        pytest.param(LogChange(expected_end=40, end_offset=0, truncate_to=0), 0, True, id="blank leader"),
        pytest.param(LogChange(expected_end=40, end_offset=5, truncate_to=5), 9, True, id="to the log start"),
        pytest.param(LogChange(expected_end=40, end_offset=6, truncate_to=6), 9, False, id="in part"),
        pytest.param(
            LogChange(expected_end=40, end_offset=0, restart_at=0), 3, True, id="built again from a blank one"
        ),
        pytest.param(LogChange(expected_end=40, end_offset=0, restart_at=0), 40, False, id="built again"),
        pytest.param(LogChange(expected_end=40, end_offset=60, restart_at=60), 90, False, id="deleted by the leader"),
    ],
)
def test_change_that_loses_every_replicated_record_is_recognized(
    change: LogChange, leader_end: int, *, is_lost: bool
) -> None:
    follower = Following()
    follower.followed.leader_end_offset = leader_end
    log = log_of((3, 5), end=40, start=5, high_watermark=20)
    assert loses_every_record(follower.followed, change, log) is is_lost
    assert not loses_every_record(follower.followed, change, log_of((3, 5), end=40, start=5, high_watermark=5))


def test_log_inside_the_leaders_log_is_kept() -> None:
    assert resolve_out_of_range(LeaderBounds(0, 60, 3), log_of((3, 0), end=45)) == KeepLog()


def test_log_with_an_epoch_that_the_leader_never_had_loses_that_epoch() -> None:
    log = log_of((3, 0), (5, 40), end=45)
    assert resolve_out_of_range(LeaderBounds(0, 60, 3), log) == Truncation(40, is_done=True)


def test_batch_across_a_log_end_that_a_truncation_left_inside_of_it_replaces_what_is_there() -> None:
    leader = ModelLeader()
    leader.append(batch(0, 5), batch(5, 10))
    follower = Following().fill(batch(0, 5), batch(5, 10))
    follower.log._truncate(9)
    assert catch_up(follower.followed, leader, follower.log)
    assert follower.log.content == leader.log.content


def test_truncation_below_what_the_cleaner_may_have_changed_begins_the_log_again() -> None:
    follower = Following()
    follower.log = MemoryFollowerLog(is_compacted=True)
    follower.fill(batch(0, 40))
    follower.log.high_watermark = 20
    change = LogChange(expected_end=40, end_offset=30, truncate_to=30)
    assert not rebuild_if_cleaned(follower.followed, change, follower.log.facts, cleaned_to=20)
    assert rebuild_if_cleaned(follower.followed, change, follower.log.facts, cleaned_to=31)
    question = follower.followed.question(follower.log.facts, now_s=follower.now_s)
    assert question is not None
    assert question.kind is QuestionKind.BOUNDS
