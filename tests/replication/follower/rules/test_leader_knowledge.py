"""The time at which a copy last had everything, and the absences after which a compacted copy begins again."""

import pytest

from tests.fakes.memory_follower_log import MemoryFollowerLog
from tests.replication.follower.following import Following, batch
from tests.replication.follower.model_leader import ModelLeader, catch_up
from tierd.replication.follower.rules.followed_partition import QuestionKind
from tierd.replication.follower.rules.leader_knowledge import SyncTracker

DAY_S = 86_400.0


def test_log_at_the_leaders_end_is_in_sync() -> None:
    tracker = SyncTracker()
    tracker.on_leader_end(10, log_end=10, now_s=50)
    assert tracker.synced_at_s == 50


def test_lagging_log_is_in_sync_as_of_the_time_at_which_the_leader_had_its_end() -> None:
    tracker = SyncTracker()
    tracker.on_leader_end(10, log_end=0, now_s=50)
    times = []
    for leader_end, log_end, now_s in [(20, 9, 60), (30, 10, 70), (40, 30, 80)]:
        tracker.on_leader_end(leader_end, log_end=log_end, now_s=now_s)
        times.append(tracker.synced_at_s)
    assert times == [None, 50, 70]


def test_unknown_time_counts_as_an_absence_without_end() -> None:
    assert SyncTracker().was_away(DAY_S, now_s=0)


@pytest.mark.parametrize(("away_s", "expected"), [(DAY_S, False), (DAY_S + 1, True)])
def test_absence_is_measured_from_the_last_time_in_sync(away_s: float, *, expected: bool) -> None:
    tracker = SyncTracker(synced_at_s=100)
    assert tracker.was_away(DAY_S, now_s=100 + away_s) is expected


def test_rebuild_is_not_interrupted_by_another_rebuild_however_long_it_takes() -> None:
    tracker = SyncTracker()
    tracker.begin_rebuild(100)
    tracker.on_leader_end(50, log_end=10, now_s=110)
    assert not tracker.was_away(DAY_S, now_s=100 + 3 * DAY_S)
    tracker.on_leader_end(60, log_end=50, now_s=100 + 3 * DAY_S)
    assert tracker.synced_at_s == 110
    assert not tracker.is_rebuilding


def compacted() -> tuple[Following, ModelLeader]:
    leader = ModelLeader()
    leader.append(batch(0, key=b"a"), batch(1, key=b"b"), batch(2, key=b"c"))
    follower = Following()
    follower.log = MemoryFollowerLog(is_compacted=True)
    follower.followed.delete_retention_s = DAY_S
    follower.fill(batch(0, key=b"a"), batch(1, key=b"b"))
    return follower, leader


def test_compacted_copy_that_was_away_for_longer_than_the_tombstones_stay_begins_again_at_the_leaders_start() -> None:
    follower, leader = compacted()
    follower.followed.sync.synced_at_s = follower.now_s - DAY_S - 1
    leader.log._raise_start(1)
    question = follower.followed.question(follower.log.facts, now_s=follower.now_s)
    assert question is not None
    assert question.kind is QuestionKind.BOUNDS
    assert catch_up(follower.followed, leader, follower.log)
    assert follower.log.content == batch(1, key=b"b") + batch(2, key=b"c")


def test_compacted_copy_that_was_away_for_a_short_time_goes_on_at_its_end() -> None:
    follower, leader = compacted()
    follower.followed.sync.synced_at_s = follower.now_s - DAY_S / 2
    assert catch_up(follower.followed, leader, follower.log)
    assert all(change.restart_at is None for change in follower.log.changes)


def test_compacted_copy_without_a_known_time_begins_again_and_an_empty_one_does_not() -> None:
    follower, _ = compacted()
    question = follower.followed.question(follower.log.facts, now_s=follower.now_s)
    assert question is not None
    assert question.kind is QuestionKind.BOUNDS
    follower.log._restart(0)
    fresh = Following()
    fresh.followed.delete_retention_s = DAY_S
    asked = fresh.followed.question(fresh.log.facts, now_s=fresh.now_s)
    assert asked is not None
    assert asked.kind is QuestionKind.RECORDS
