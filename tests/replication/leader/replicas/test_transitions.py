"""Transitions between pull and push, as the leader decides them (push-replication 1.8, 2.11 to 2.13)."""

import pytest

from tests.replication.leader.push_story import topic_partition
from tests.replication.leader.replicating import ReplicatorStory
from tierd.replication.leader.replicas.transition_rules import TransitionObstacle
from tierd.replication.model.messages import DivergingEpoch
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerNode, PushSessionEndReason
from tierd.replication.model.replication_state import FINAL_SESSION_ID, UNKNOWN_SESSION_ID, ReplicationMode


@pytest.fixture
def story() -> ReplicatorStory:
    return ReplicatorStory()


@pytest.mark.spec("push-replication 87")
def test_standby_at_the_log_end_is_promoted_with_an_opening_request_and_an_answer_without_records(
    story: ReplicatorStory,
) -> None:
    story.log.append()

    answer = story.fetch(1, session_id=4)

    assert answer is not None
    assert (answer.error_code, answer.records, answer.push_started) == (0, (), True)
    (session,) = story.pushes.started
    assert (session.identity.session_id, session.identity.replica_epoch, session.identity.leader_epoch) == (4, 100, 1)
    (part,) = story.parts()
    assert (part.append_offset, part.last_epoch, part.session_id) == (1, 1, 4)


@pytest.mark.spec("push-replication 88")
def test_append_before_the_registration_is_in_the_file_range_and_sent_once(story: ReplicatorStory) -> None:
    story.log.append()
    story.fetch(1, session_id=FINAL_SESSION_ID)
    story.log.append()
    story.log.append()

    answer = story.fetch(1)
    story.answer_all()
    story.log.append()
    story.answer_all()

    assert answer is not None
    assert answer.push_started
    assert [offset for request in range(len(story.sent)) for offset in story.records(request)[0]] == [1, 2, 3]


@pytest.mark.spec("push-replication 89")
def test_standby_that_is_not_in_sync_is_not_promoted(story: ReplicatorStory) -> None:
    story.log.append(count=10)
    story.log.append()
    story.wait(30.1)
    story.replicator.advance()

    assert story.fetch(0, last_epoch=-1) is None

    assert story.pushes.started == []
    assert story.replicator.in_sync_ids == ()


@pytest.mark.spec("push-replication 89")
def test_fetch_from_the_middle_of_a_batch_begins_no_session() -> None:
    story = ReplicatorStory(is_owned=False)
    story.log.append(count=10)

    assert story.fetch(5) is None

    assert story.pushes.started == []


@pytest.mark.spec("push-replication 48")
def test_standby_that_only_lags_is_counted_and_not_promoted() -> None:
    story = ReplicatorStory(is_owned=False, transition_max_lag_bytes=150)
    story.log.append(size=100)
    story.log.append(size=100)

    assert story.fetch(0, last_epoch=-1) is None

    assert (story.pushes.not_caught_up, story.pushes.started) == (1, [])
    assert [each.closed for each in story.log.ranges] == [1]


def test_standby_that_lacks_another_condition_is_not_counted(story: ReplicatorStory) -> None:
    story.replicator.throttle(1, is_throttled=True)
    story.fetch(0)
    assert story.pushes.not_caught_up == 0


@pytest.mark.spec("push-replication 90")
def test_overflow_keeps_a_standby_in_pull_for_a_cooldown_that_doubles() -> None:
    story = ReplicatorStory(session_buffer_max_bytes=150)
    delays = list[float]()
    for session_id in (0, 1):
        story.promote(session_id=session_id)
        story.log.append(size=100)
        story.log.append(size=100)
        ended_s = story.now_s
        story.answer_all()
        while (answer := story.fetch(story.log.log_end_offset, session_id=session_id + 1)) is None:
            story.wait(0.5)
        assert answer.push_started
        delays.append(story.now_s - ended_s)
        story.replicator.end_sessions(PushSessionEndReason.FOLLOWER_RETURNED_TO_PULL)
        story.wait(1.0)

    assert delays == [1.0, 2.0]


@pytest.mark.spec("push-replication 91")
def test_fetch_with_a_higher_session_id_ends_the_session_without_a_signal(story: ReplicatorStory) -> None:
    story.promote(session_id=3)

    assert story.fetch(0, session_id=4) is None
    story.wait(5.0)

    assert story.pushes.ends == [PushSessionEndReason.FOLLOWER_RETURNED_TO_PULL]
    assert not any(part.end_session for request in story.sent for part in request.partitions)


def test_fetch_that_crossed_the_opening_request_gets_no_records_and_no_error(story: ReplicatorStory) -> None:
    story.promote(session_id=3)

    answer = story.fetch(0, session_id=3)

    assert answer is not None
    assert (answer.error_code, answer.records, answer.session_id) == (0, (), 3)
    assert story.pushes.ends == []


def test_fetch_with_a_lower_session_id_is_stale_and_ends_nothing(story: ReplicatorStory) -> None:
    story.promote(session_id=3)

    answer = story.fetch(0, session_id=2)

    assert answer is not None
    assert answer.error_code == PushErrorCode.STALE_REPLICATION_SESSION
    assert story.pushes.ends == []


@pytest.mark.parametrize("session_id", [UNKNOWN_SESSION_ID, FINAL_SESSION_ID])
def test_standby_without_push_fetches_on(story: ReplicatorStory, session_id: int) -> None:
    assert story.fetch(0, session_id=session_id) is None
    assert story.pushes.started == []


def test_full_memory_begins_no_session(story: ReplicatorStory) -> None:
    story.pushes.is_full = True
    assert story.fetch(0) is None
    assert [each.why_not_pushed for each in story.replicator.statuses()] == [TransitionObstacle.MEMORY_FULL.value]


def test_log_that_moves_begins_no_session(story: ReplicatorStory) -> None:
    story.replicator.note_move(is_moving=True)
    assert story.fetch(0) is None


def test_throttled_standby_loses_its_session_and_gets_none(story: ReplicatorStory) -> None:
    story.promote()
    story.replicator.throttle(1, is_throttled=True)

    assert story.pushes.ends == [PushSessionEndReason.REPLICA_THROTTLED]
    story.wait(2.0)
    assert story.fetch(0, session_id=1) is None


def test_watermark_and_log_start_of_the_moment_travel_with_the_opening_request() -> None:
    story = ReplicatorStory(is_owned=False)
    for _ in range(5):
        story.log.append()
    story.log.raise_high_watermark(4)
    story.log.raise_log_start(2)

    story.promote()
    story.wait(1.0)

    told = [part for request in story.sent for part in request.partitions]
    assert max(part.high_watermark for part in told) == 4
    assert max(part.log_start_offset for part in told) == 2


# Authorisation and epochs


def test_node_that_is_not_a_replica_gets_nothing(story: ReplicatorStory) -> None:
    story.log.append()
    answer = story.fetch(0, replica=9, last_epoch=-1)
    assert answer is not None
    assert answer.error_code == PushErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (answer.log_end_offset, answer.high_watermark) == (-1, -1)


def test_removed_replica_loses_its_session_and_its_right_to_fetch(story: ReplicatorStory) -> None:
    story.promote()
    story.replicator.assign([PeerNode(2, "host2", 9406)])

    assert story.pushes.ends == [PushSessionEndReason.REPLICA_REMOVED]
    answer = story.fetch(0, session_id=1)
    assert answer is not None
    assert answer.error_code == PushErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, PushErrorCode.FENCED_LEADER_EPOCH), (2, PushErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_fetch_with_another_leader_epoch_is_refused(story: ReplicatorStory, epoch: int, code: PushErrorCode) -> None:
    answer = story.fetch(0, leader_epoch=epoch)
    assert answer is not None
    assert answer.error_code == code


def test_standby_that_lost_acknowledged_records_is_in_sync_no_more(story: ReplicatorStory) -> None:
    story.log.append()
    story.promote()
    story.log.append()
    story.answer_all()
    story.log.append()

    story.answer(PushErrorCode.APPEND_OFFSET_MISMATCH, leo=0)

    (status,) = story.replicator.statuses()
    assert (status.mode, status.log_end_offset, status.is_in_sync) == (ReplicationMode.PULL, -1, False)
    assert "FOLLOWER_OFFSET_GAP" in status.why_not_pushed


@pytest.mark.spec("push-replication F17")
def test_diverging_standby_is_told_where_and_is_in_sync_no_more(story: ReplicatorStory) -> None:
    story.log.append(count=5)
    story.fetch(5)
    story.log.leader_epoch = 3
    story.log.append()

    answer = story.fetch(6, last_epoch=2, session_id=1)

    assert answer is not None
    assert answer.diverging == DivergingEpoch(1, 5)
    assert story.replicator.in_sync_ids == ()


# Failures


@pytest.mark.spec("push-replication F2")
def test_leader_that_started_again_pushes_to_none_until_a_fetch(story: ReplicatorStory) -> None:
    story.log.append()
    story.log.append()
    assert (story.sent, story.pushes.started) == ([], [])
    assert [each.mode for each in story.replicator.statuses()] == [ReplicationMode.PULL]


@pytest.mark.spec("push-replication F4")
def test_standby_that_started_again_loses_its_session_and_begins_with_a_new_identity(story: ReplicatorStory) -> None:
    story.promote(session_id=3)
    story.wait(2.0)

    answer = story.fetch(0, session_id=0, replica_epoch=101)

    assert answer is not None
    assert answer.push_started
    assert story.pushes.ends == [PushSessionEndReason.FOLLOWER_RESTARTED]
    assert [each.identity.replica_epoch for each in story.pushes.started] == [100, 101]


@pytest.mark.spec("push-replication F4")
def test_fetch_of_an_older_process_is_refused(story: ReplicatorStory) -> None:
    story.fetch(0, replica_epoch=101)
    answer = story.fetch(0, replica_epoch=100)
    assert answer is not None
    assert answer.error_code == PushErrorCode.STALE_BROKER_EPOCH


@pytest.mark.spec("push-replication F5")
def test_answer_to_a_request_of_the_old_epoch_moves_no_watermark(story: ReplicatorStory) -> None:
    story.promote()
    story.log.append()
    late = story.outstanding[0]
    story.log.leader_epoch = 2
    story.replicator.check_leader_epoch()

    story.answer()

    assert late.request.partitions[0].leader_epoch == 1
    assert story.pushes.ends == [PushSessionEndReason.NEW_LEADER_EPOCH]
    assert story.log.high_watermark == 0


@pytest.mark.spec("push-replication F6")
def test_leader_whose_epoch_is_refused_leads_no_further_until_it_is_confirmed(story: ReplicatorStory) -> None:
    story.promote()
    story.log.append()
    story.answer(int(PushErrorCode.FENCED_LEADER_EPOCH), leo=0)
    ((partition, epoch),) = story.doubts
    assert partition == topic_partition()
    story.replicator.doubt_leadership(epoch)

    answer = story.fetch(0)
    assert answer is not None
    assert answer.error_code == PushErrorCode.NOT_LEADER_OR_FOLLOWER

    story.replicator.confirm_leadership()
    story.wait(400.0)
    confirmed = story.fetch(1)
    assert confirmed is not None
    assert confirmed.push_started


@pytest.mark.spec("push-replication F16")
def test_watermark_of_a_leader_that_was_replaced_waits_for_its_in_sync_standby(story: ReplicatorStory) -> None:
    story.promote()
    story.log.append()
    story.replicator.advance()
    assert story.log.high_watermark == 0

    story.answer(int(PushErrorCode.FENCED_LEADER_EPOCH), leo=0)
    story.replicator.doubt_leadership(story.doubts[0][1])
    story.wait(100.0)
    story.replicator.advance()

    assert story.log.high_watermark == 0


@pytest.mark.spec("push-replication F16")
def test_watermark_stands_still_below_the_least_number_of_in_sync_replicas() -> None:
    story = ReplicatorStory(min_in_sync=2)
    story.log.append()
    assert story.log.high_watermark == 0
    story.fetch(1)
    assert story.log.high_watermark == 1

    story.log.append()
    story.wait(100.0)
    story.replicator.advance()

    assert story.replicator.in_sync_ids == ()
    assert story.log.high_watermark == 1


@pytest.mark.spec("push-replication F18")
def test_truncated_log_ends_the_sessions_and_counts_no_standby_as_in_sync(story: ReplicatorStory) -> None:
    story.log.append()
    story.promote()
    story.log.append()
    story.log.truncate(1)
    assert story.pushes.ends == [PushSessionEndReason.LEADER_LOG_TRUNCATED]
    assert story.replicator.in_sync_ids == ()


@pytest.mark.spec("push-replication F24")
def test_log_start_inside_a_batch_reaches_the_standby_after_the_watermark_that_allows_it(
    story: ReplicatorStory,
) -> None:
    story.promote()
    story.log.append(count=10)
    story.answer_all()
    assert story.log.high_watermark == 10

    story.log.raise_log_start(4)
    story.wait(1.0)

    assert story.parts()[0].log_start_offset == 4
    told = [part.high_watermark for request in story.sent for part in request.partitions]
    assert max(told) == 10


# In sync, watermark


def test_watermark_of_an_owned_log_without_standbys_follows_the_log_end() -> None:
    story = ReplicatorStory(replicas=())
    story.log.append()
    assert story.log.high_watermark == 1


def test_watermark_is_the_smallest_end_of_leader_and_in_sync_standbys() -> None:
    story = ReplicatorStory(replicas=(1, 2))
    story.promote(1)
    story.promote(2)
    story.log.append()
    assert story.log.high_watermark == 0
    story.answer()
    assert story.log.high_watermark == 0
    story.answer_all()
    assert story.log.high_watermark == 1


def test_standby_that_keeps_up_with_a_busy_log_joins_the_in_sync_replicas(story: ReplicatorStory) -> None:
    story.log.append()
    for offset in range(3):
        story.fetch(offset, session_id=FINAL_SESSION_ID)
        story.log.append()  # before the standby can ask again
    assert story.replicator.in_sync_ids == (1,)


def test_watermark_waits_no_longer_for_a_standby_that_stops_before_it_joins(story: ReplicatorStory) -> None:
    story.log.append(count=5)
    story.wait(30.1)
    story.replicator.advance()
    story.fetch(0, last_epoch=-1, session_id=FINAL_SESSION_ID)
    story.log.append()
    story.fetch(5, session_id=FINAL_SESSION_ID)
    story.log.append()
    assert (story.replicator.in_sync_ids, story.log.high_watermark) == ((), 6)

    story.wait(30.1)

    assert story.replicator.advance() is False
    assert story.log.high_watermark == 7


def test_watermark_of_a_broker_is_left_alone() -> None:
    story = ReplicatorStory(is_owned=False)
    story.promote()
    story.log.append()
    story.answer_all()
    assert story.log.high_watermark == 0


def test_silent_standby_leaves_the_in_sync_replicas_and_the_watermark_goes_on(story: ReplicatorStory) -> None:
    story.fetch(0, session_id=FINAL_SESSION_ID)
    story.log.append()
    story.wait(30.0)
    story.replicator.advance()
    assert story.log.high_watermark == 0

    story.wait(0.1)
    story.replicator.advance()

    assert (story.replicator.in_sync_ids, story.log.high_watermark) == ((), 1)


def test_standby_that_lags_in_push_mode_goes_back_to_pull() -> None:
    story = ReplicatorStory()
    story.promote()
    for _ in range(7):
        story.log.append()
        story.wait(5.0)
        for _ in range(len(story.outstanding)):
            story.answer(leo=0)
    story.replicator.advance()
    assert story.replicator.in_sync_ids == ()
    assert story.replicator.statuses()[0].mode is ReplicationMode.PULL


# Ends


@pytest.mark.parametrize(
    "reason",
    [
        PushSessionEndReason.LEADER_RESIGNED,
        PushSessionEndReason.PARTITION_DELETED,
        PushSessionEndReason.NEW_LEADER_EPOCH,
    ],
)
def test_closed_replicator_ends_its_sessions_and_answers_no_fetch(
    story: ReplicatorStory, reason: PushSessionEndReason
) -> None:
    story.promote()

    story.replicator.close(reason)

    answer = story.fetch(0, session_id=1)
    assert answer is not None
    assert answer.error_code == PushErrorCode.NOT_LEADER_OR_FOLLOWER
    assert story.pushes.ends == [reason]
    assert story.log.listener is None


# Status


def test_status_tells_lag_in_offsets_bytes_and_time(story: ReplicatorStory) -> None:
    story.promote()
    story.wait(2.0)
    story.answer_all()
    story.log.append(count=3, size=300)
    story.now_s += 0.25

    (status,) = story.replicator.statuses()

    assert (status.lag_offsets, status.lag_bytes, status.lag_s) == (3, 300, 0.25)
    assert (status.mode, status.why_not_pushed) == (ReplicationMode.PUSH, "")


def test_status_of_a_standby_that_lacks_nothing_has_no_lag(story: ReplicatorStory) -> None:
    story.log.append()
    story.promote()
    story.now_s += 100.0
    (status,) = story.replicator.statuses()
    assert (status.lag_offsets, status.lag_bytes, status.lag_s) == (0, 0, 0.0)
