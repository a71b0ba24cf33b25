"""State of one replica at its leader: caught-up times, sync, session ids, cooldown (push-replication 2.13)."""

import pytest

from tests.replication.leader.push_story import session
from tierd.replication.leader.replicas.replica_progress import NEVER_S, PushCooldown, ReplicaProgress
from tierd.replication.model.push_session import PeerNode, PushSessionEndReason
from tierd.replication.model.replication_state import FINAL_SESSION_ID, UNKNOWN_SESSION_ID, ReplicationMode


@pytest.fixture
def progress() -> ReplicaProgress:
    return ReplicaProgress(PeerNode(1, "host1", 9406))


@pytest.mark.spec("push-replication 46")
def test_ack_of_all_that_the_leader_had_at_the_send_counts_as_caught_up_then(progress: ReplicaProgress) -> None:
    progress.on_ack(100, log_end=120, log_end_at_send=100, sent_at_s=5.0, now_s=7.0)
    assert progress.caught_up_s == 5.0


@pytest.mark.spec("push-replication 47")
def test_ack_of_the_log_end_counts_as_caught_up_now(progress: ReplicaProgress) -> None:
    progress.on_ack(120, log_end=120, log_end_at_send=100, sent_at_s=5.0, now_s=7.0)
    assert progress.caught_up_s == 7.0


def test_ack_below_the_log_end_at_the_send_leaves_the_caught_up_time(progress: ReplicaProgress) -> None:
    progress.on_ack(99, log_end=120, log_end_at_send=100, sent_at_s=5.0, now_s=7.0)
    assert (progress.caught_up_s, progress.log_end_offset) == (NEVER_S, 99)


def test_caught_up_time_never_falls(progress: ReplicaProgress) -> None:
    progress.on_ack(120, log_end=120, log_end_at_send=120, sent_at_s=5.0, now_s=7.0)
    progress.on_ack(120, log_end=130, log_end_at_send=120, sent_at_s=6.0, now_s=8.0)
    assert progress.caught_up_s == 7.0


def test_fetch_of_what_the_leader_had_at_the_fetch_before_counts_as_caught_up_then(progress: ReplicaProgress) -> None:
    progress.on_fetch(50, 0, log_end=100, now_s=1.0)
    progress.on_fetch(100, 0, log_end=120, now_s=2.0)
    assert progress.caught_up_s == 1.0


def test_append_to_a_replica_that_lacks_nothing_moves_the_time_at_which_it_was_complete(
    progress: ReplicaProgress,
) -> None:
    progress.on_fetch(100, 0, log_end=100, now_s=1.0)
    progress.on_leader_append(100, 9.0)
    progress.on_leader_append(110, 10.0)
    assert (progress.complete_s, progress.caught_up_s) == (9.0, 1.0)


def test_replica_at_the_log_end_never_lags_too_long(progress: ReplicaProgress) -> None:
    progress.on_fetch(100, 0, log_end=100, now_s=1.0)
    assert not progress.lags_too_long(100, max_lag_s=30, now_s=1000.0)


def test_replica_below_the_log_end_lags_too_long_after_the_limit(progress: ReplicaProgress) -> None:
    progress.on_fetch(100, 0, log_end=100, now_s=1.0)
    assert not progress.lags_too_long(101, max_lag_s=30, now_s=31.0)
    assert progress.lags_too_long(101, max_lag_s=30, now_s=31.1)


@pytest.mark.parametrize("session_id", [UNKNOWN_SESSION_ID, FINAL_SESSION_ID])
def test_id_of_a_follower_without_push_is_no_state(progress: ReplicaProgress, session_id: int) -> None:
    progress.on_session_id(4)
    progress.on_session_id(session_id)
    assert progress.state.session_id == 4


def test_ended_session_leaves_its_id_and_its_reason(progress: ReplicaProgress) -> None:
    progress.on_session_id(5)
    progress.begin_session(session(session_id=5), 1.0)
    assert progress.is_pushed

    progress.end_session(PushSessionEndReason.BUFFER_OVERFLOW, 2.0)

    assert progress.state.mode is ReplicationMode.PULL
    assert (progress.ended_session_id, progress.end_reason) == (5, PushSessionEndReason.BUFFER_OVERFLOW)


def test_new_process_of_the_standby_begins_with_nothing_known(progress: ReplicaProgress) -> None:
    progress.on_session_id(5)
    progress.begin_session(session(session_id=5), 1.0)
    progress.end_session(PushSessionEndReason.FOLLOWER_RESTARTED, 2.0)
    progress.join_in_sync(2.0)

    progress.on_process(200)

    assert (progress.replica_epoch, progress.ended_session_id) == (200, UNKNOWN_SESSION_ID)
    assert not progress.is_known
    assert not progress.is_in_sync


# Cooldown


@pytest.mark.spec("push-replication 90")
def test_cooldown_doubles_with_each_failed_session() -> None:
    cooldown = PushCooldown()
    cooldown.on_session_end(PushSessionEndReason.BUFFER_OVERFLOW, began_s=0.0, now_s=10.0)
    assert cooldown.until_s == 11.0
    cooldown.on_session_end(PushSessionEndReason.BUFFER_OVERFLOW, began_s=11.0, now_s=20.0)
    assert cooldown.until_s == 22.0


@pytest.mark.spec("push-replication F27")
def test_standby_that_refuses_the_size_of_a_batch_is_pushed_to_five_minutes_later() -> None:
    cooldown = PushCooldown()
    for began_s in (0.0, 310.0):
        cooldown.on_session_end(PushSessionEndReason.RECORDS_TOO_LARGE, began_s=began_s, now_s=began_s + 10.0)
        assert cooldown.until_s == began_s + 310.0


@pytest.mark.spec("push-replication F28")
def test_cooldown_ends_at_five_minutes() -> None:
    cooldown, now_s = PushCooldown(), 0.0
    for _ in range(20):
        cooldown.on_session_end(PushSessionEndReason.REQUEST_RETRIES_EXHAUSTED, began_s=now_s, now_s=now_s)
        now_s = cooldown.until_s
    assert cooldown.delay_s == 300.0


def test_session_of_ten_minutes_resets_the_cooldown() -> None:
    cooldown = PushCooldown(delay_s=64.0)
    cooldown.on_session_end(PushSessionEndReason.BUFFER_OVERFLOW, began_s=0.0, now_s=600.0)
    assert cooldown.until_s == 601.0


@pytest.mark.spec("push-replication F28")
def test_sessions_that_end_without_a_cooldown_begin_a_second_apart() -> None:
    cooldown = PushCooldown()
    cooldown.on_session_end(PushSessionEndReason.FOLLOWER_RETURNED_TO_PULL, began_s=10.0, now_s=10.1)
    assert (cooldown.until_s, cooldown.delay_s) == (11.0, 1.0)
