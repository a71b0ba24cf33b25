"""Decisions about the entries of AppendRecords requests, on a log in memory."""

import pytest

from tests.replication.follower.following import EPOCH, Following, batch, diverging, entry
from tierd.replication.follower.rules.followed_partition import FetchStage, LeaderClaim
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.replication_state import FINAL_SESSION_ID, UNKNOWN_SESSION_ID, ReplicationMode

PULL, PUSH = ReplicationMode.PULL, ReplicationMode.PUSH


def pushed(session_id: int = 0, *batches: bytes) -> Following:
    return Following().fill(*batches).in_state(PUSH, session_id)


@pytest.mark.spec("push-replication 58")
def test_push_at_the_log_end_with_the_epoch_of_the_last_record_begins_a_session() -> None:
    follower = Following().fill(batch(0, 10))
    answer = follower.push(entry(append_offset=10, last_epoch=EPOCH, records=batch(10, 5)))
    assert (answer.error_code, answer.log_end_offset) == (0, 15)
    assert follower.mode is PUSH
    assert follower.followed.question(follower.log.facts, now_s=follower.now_s) is None


def test_empty_opening_request_begins_a_session_and_brings_the_watermarks() -> None:
    follower = Following().fill(batch(0, 10))
    answer = follower.push(entry(append_offset=10, last_epoch=EPOCH, high_watermark=8, log_start_offset=3))
    assert (answer.error_code, answer.log_end_offset, answer.log_start_offset) == (0, 10, 3)
    assert follower.mode is PUSH
    assert follower.log.high_watermark == 8


def test_opening_request_without_records_and_without_an_offset_begins_no_session() -> None:
    follower = Following().fill(batch(0, 10))
    answer = follower.push(entry(high_watermark=8))
    assert answer.error_code == PushErrorCode.APPEND_OFFSET_MISMATCH
    assert follower.mode is PULL


@pytest.mark.spec("push-replication 59")
@pytest.mark.parametrize("session_id", [FINAL_SESSION_ID, 0])
def test_push_to_a_follower_with_push_switched_off_is_refused(session_id: int) -> None:
    follower = Following()
    follower.followed.enable_push(is_enabled=False, now_s=follower.now_s)
    answer = follower.push(entry(append_offset=0, session_id=session_id, records=batch(0)))
    assert answer.error_code == PushErrorCode.STALE_REPLICATION_SESSION
    assert answer.session_id == FINAL_SESSION_ID
    assert follower.mode is PULL
    assert follower.log.log_end_offset == 0


def test_push_with_the_unknown_session_id_is_refused() -> None:
    follower = Following().in_state(PULL, UNKNOWN_SESSION_ID)
    answer = follower.push(entry(append_offset=0, session_id=UNKNOWN_SESSION_ID, records=batch(0)))
    assert answer.error_code == PushErrorCode.STALE_REPLICATION_SESSION
    assert follower.mode is PULL


def test_push_switched_off_during_a_session_ends_the_session_and_on_again_allows_the_next_one() -> None:
    follower = pushed(3, batch(0, 10))
    follower.followed.enable_push(is_enabled=False, now_s=follower.now_s)
    assert (follower.mode, follower.followed.session_id) == (PULL, FINAL_SESSION_ID)
    follower.followed.enable_push(is_enabled=True, now_s=follower.now_s)
    answer = follower.push(entry(append_offset=10, last_epoch=EPOCH, session_id=4, records=batch(10)))
    assert (answer.error_code, answer.session_id) == (0, 4)


@pytest.mark.spec("push-replication 60")
def test_end_signal_of_the_session_brings_the_follower_back_to_pull_with_the_next_id() -> None:
    follower = pushed(3, batch(0, 10))
    answer = follower.push(entry(session_id=3, end_session=True))
    assert (answer.error_code, answer.session_id) == (0, 4)
    assert follower.mode is PULL
    question = follower.followed.question(follower.log.facts, now_s=follower.now_s)
    assert question is not None
    assert (question.log_end_offset, question.session_id) == (10, 4)


@pytest.mark.spec("push-replication 61")
def test_end_signal_that_is_repeated_is_answered_and_changes_nothing() -> None:
    follower = Following().in_state(PULL, 4)
    answer = follower.push(entry(session_id=3, end_session=True))
    assert (answer.error_code, answer.session_id) == (0, 4)
    assert follower.mode is PULL


@pytest.mark.spec("push-replication F22")
def test_end_signal_of_an_older_session_does_not_end_the_present_one() -> None:
    follower = pushed(4)
    assert follower.push(entry(session_id=3, end_session=True)).error_code == 0
    assert (follower.mode, follower.followed.session_id) == (PUSH, 4)


def test_end_signal_before_the_session_has_begun_is_answered_and_changes_nothing() -> None:
    follower = Following()
    assert follower.push(entry(session_id=0, end_session=True)).error_code == 0
    assert (follower.mode, follower.followed.session_id) == (PULL, 0)


def test_end_signal_with_records_is_refused() -> None:
    follower = pushed(3)
    answer = follower.push(entry(session_id=3, end_session=True, append_offset=0, records=batch(0)))
    assert answer.error_code == PushErrorCode.INVALID_REQUEST
    assert follower.mode is PUSH
    assert not follower.log.batches


@pytest.mark.spec("push-replication 62")
def test_push_of_an_older_session_is_refused_and_appends_nothing() -> None:
    follower = pushed(3)
    answer = follower.push(entry(session_id=2, append_offset=0, records=batch(0)))
    assert answer.error_code == PushErrorCode.STALE_REPLICATION_SESSION
    assert not follower.log.batches


def test_push_of_a_session_id_that_the_follower_has_not_given_is_refused() -> None:
    assert pushed(3).push(entry(session_id=4)).error_code == PushErrorCode.INVALID_REQUEST


@pytest.mark.spec("push-replication F5")
@pytest.mark.spec("push-replication F6")
@pytest.mark.spec("push-replication F7")
@pytest.mark.spec("push-replication 63")
@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [(6, PushErrorCode.FENCED_LEADER_EPOCH), (8, PushErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_push_of_another_leader_epoch_is_refused(leader_epoch: int, code: PushErrorCode) -> None:
    follower = pushed(0, batch(0, 10))
    sent = entry(leader_epoch=leader_epoch, append_offset=10, last_epoch=EPOCH, records=batch(10, epoch=6))
    assert follower.push(sent).error_code == code
    assert follower.log.log_end_offset == 10


@pytest.mark.spec("push-replication 64")
def test_push_of_another_node_with_the_same_epoch_is_refused() -> None:
    assert pushed().push(entry(), sender_id=2).error_code == PushErrorCode.NOT_LEADER_OR_FOLLOWER


def test_other_node_of_the_same_epoch_is_followed_from_a_comparison_of_the_logs_on() -> None:
    follower = pushed(0, batch(0, 10))
    assert not follower.followed.follow(LeaderClaim(1, EPOCH), now_s=follower.now_s)
    assert not follower.followed.follow(LeaderClaim(2, EPOCH - 1), now_s=follower.now_s)
    assert follower.followed.is_pushed
    assert follower.followed.follow(LeaderClaim(2, EPOCH), now_s=follower.now_s)
    assert (follower.followed.leader, follower.followed.is_pushed) == (LeaderClaim(2, EPOCH), False)
    assert follower.followed.stage is FetchStage.TRUNCATING
    assert follower.push(entry(append_offset=10, last_epoch=EPOCH, records=batch(10))).error_code != PushErrorCode.NONE
    assert follower.log.log_end_offset == 10


@pytest.mark.spec("push-replication 65")
def test_push_above_the_log_end_is_answered_with_the_log_end() -> None:
    follower = pushed(0, batch(0, 10))
    answer = follower.push(entry(append_offset=12, last_epoch=EPOCH, records=batch(12)))
    assert (answer.error_code, answer.log_end_offset) == (PushErrorCode.APPEND_OFFSET_MISMATCH, 10)
    assert follower.mode is PUSH


@pytest.mark.spec("push-replication 66")
def test_resent_records_are_acknowledged_and_the_log_is_the_same_byte_for_byte() -> None:
    follower = pushed(0, batch(0, 5), batch(5, 5))
    before = follower.log.content
    answer = follower.push(entry(append_offset=5, last_epoch=EPOCH, records=batch(5, 5)))
    assert (answer.error_code, answer.log_end_offset) == (0, 10)
    assert follower.log.content == before


@pytest.mark.spec("push-replication 67")
def test_records_that_the_log_has_in_part_are_appended_from_the_log_end_on() -> None:
    follower = pushed(0, batch(0, 5), batch(5, 5))
    answer = follower.push(entry(append_offset=5, last_epoch=EPOCH, records=batch(5, 5) + batch(10, 5)))
    assert (answer.error_code, answer.log_end_offset) == (0, 15)
    assert follower.log.content == batch(0, 5) + batch(5, 5) + batch(10, 5)


def test_resent_records_of_another_epoch_are_a_divergence() -> None:
    follower = pushed(0, batch(0, 5, epoch=3), batch(5, 5, epoch=3))
    answer = follower.push(entry(append_offset=5, last_epoch=3, records=batch(5, 5, epoch=4) + batch(10, epoch=4)))
    assert (answer.error_code, answer.diverging) == (PushErrorCode.LOG_DIVERGED, diverging(3, 10))
    assert follower.log.log_end_offset == 10


def test_records_that_do_not_continue_at_a_batch_of_the_log_are_to_be_sent_from_the_log_end() -> None:
    follower = pushed(0, batch(0, 5), batch(5, 5))
    answer = follower.push(entry(append_offset=3, last_epoch=EPOCH, records=batch(3, 10)))
    assert (answer.error_code, answer.log_end_offset) == (PushErrorCode.APPEND_OFFSET_MISMATCH, 10)


def test_known_records_before_a_hole_of_another_epoch_do_not_vouch_for_the_rest() -> None:
    follower = pushed(0, batch(0, 5, epoch=3), batch(5, 5, epoch=4))
    answer = follower.push(entry(append_offset=0, records=batch(0, 5, epoch=3) + batch(10, 5, epoch=5)))
    assert answer.error_code == PushErrorCode.APPEND_OFFSET_MISMATCH
    assert follower.log.log_end_offset == 10


@pytest.mark.spec("push-replication F17")
@pytest.mark.spec("push-replication 68")
def test_push_after_a_record_of_another_epoch_is_a_divergence_and_ends_the_session() -> None:
    follower = pushed(0, batch(0, 10, epoch=3))
    answer = follower.push(entry(append_offset=10, last_epoch=4, records=batch(10, epoch=4)))
    assert (answer.error_code, answer.diverging) == (PushErrorCode.LOG_DIVERGED, diverging(3, 10))
    assert (follower.mode, follower.followed.session_id) == (PULL, 1)
    assert follower.followed.stage is FetchStage.TRUNCATING


@pytest.mark.spec("push-replication F20")
@pytest.mark.spec("push-replication 69")
def test_batch_with_a_flipped_bit_is_refused_and_nothing_is_appended() -> None:
    follower = pushed()
    damaged = bytearray(batch(0, 5))
    damaged[-1] ^= 1
    answer = follower.push(entry(append_offset=0, records=bytes(damaged)))
    assert (answer.error_code, answer.log_end_offset) == (PushErrorCode.CORRUPT_MESSAGE, 0)
    assert follower.mode is PUSH


def test_flipped_bit_behind_the_first_of_several_appends_leaves_all_of_them_out() -> None:
    follower = pushed()
    follower.log = type(follower.log)(max_append_bytes=len(batch(0)))
    damaged = bytearray(batch(0) + batch(1) + batch(2))
    damaged[-1] ^= 1
    answer = follower.push(entry(append_offset=0, records=bytes(damaged)))
    assert answer.error_code == PushErrorCode.CORRUPT_MESSAGE
    assert not follower.log.batches


def test_records_above_the_size_of_an_append_are_appended_in_several() -> None:
    follower = pushed()
    follower.log = type(follower.log)(max_append_bytes=len(batch(0)))
    assert follower.push(entry(append_offset=0, records=batch(0) + batch(1) + batch(2))).log_end_offset == 3
    assert len(follower.log.changes[-1].records) == 3
    assert follower.log.changes[-1].headers is None


def test_log_gets_the_headers_of_records_that_are_appended_whole() -> None:
    follower = pushed()
    follower.push(entry(append_offset=0, records=batch(0, 5) + batch(5, 5)))
    headers = follower.log.changes[-1].headers or ()
    assert [(each.base_offset, each.position) for each in headers] == [(0, 0), (5, len(batch(0, 5)))]
    follower.push(entry(append_offset=5, last_epoch=EPOCH, records=batch(5, 5) + batch(10)))
    assert follower.log.changes[-1].headers is None  # positions would be those of the known batch too


@pytest.mark.spec("push-replication 70")
@pytest.mark.parametrize("cut", [1, 30, 70])
def test_records_that_end_inside_a_batch_are_refused_and_nothing_is_appended(cut: int) -> None:
    follower = pushed()
    answer = follower.push(entry(append_offset=0, records=(batch(0, 5) + batch(5, 5))[:-cut]))
    assert answer.error_code == PushErrorCode.CORRUPT_MESSAGE
    assert not follower.log.batches


@pytest.mark.spec("push-replication 71")
def test_records_behind_a_gap_of_compaction_are_appended() -> None:
    follower = pushed(0, batch(0, 10))
    answer = follower.push(entry(append_offset=10, last_epoch=EPOCH, records=batch(14, 3)))
    assert (answer.error_code, answer.log_end_offset) == (0, 17)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(batch(9, 5), id="below the append offset"),
        pytest.param(batch(15) + batch(12), id="falling offsets"),
        pytest.param(batch(10, epoch=8), id="above the leader's epoch"),
        pytest.param(batch(10, epoch=7) + batch(11, epoch=6), id="falling epochs"),
        pytest.param(batch(10, epoch=6), id="below the last record's epoch"),
    ],
)
def test_records_out_of_order_are_refused_and_end_the_session(records: bytes) -> None:
    follower = pushed(0, batch(0, 10))
    answer = follower.push(entry(append_offset=10, last_epoch=EPOCH, records=records))
    assert (answer.error_code, answer.log_end_offset) == (PushErrorCode.INVALID_RECORD, 10)
    assert (follower.mode, answer.session_id) == (PULL, 1)


@pytest.mark.spec("push-replication 72")
def test_high_watermark_above_the_log_end_is_clipped_and_rises_with_the_records() -> None:
    follower = pushed(0, batch(0, 40))
    follower.push(entry(high_watermark=50))
    assert follower.log.high_watermark == 40
    follower.push(entry(append_offset=40, last_epoch=EPOCH, records=batch(40, 20)))
    assert follower.log.high_watermark == 50


@pytest.mark.spec("push-replication 73")
def test_log_start_follows_the_high_watermark_of_the_same_entry() -> None:
    follower = pushed(0, batch(0, 20), batch(20, 20))
    follower.log.high_watermark = 20
    answer = follower.push(entry(high_watermark=30, log_start_offset=30))
    assert (follower.log.high_watermark, answer.log_start_offset) == (30, 30)


def test_log_start_above_the_high_watermark_waits_for_the_high_watermark() -> None:
    follower = pushed(0, batch(0, 40))
    answer = follower.push(entry(high_watermark=20, log_start_offset=30))
    assert (follower.log.high_watermark, answer.log_start_offset) == (20, 20)
    assert follower.push(entry(high_watermark=35)).log_start_offset == 30


@pytest.mark.spec("push-replication 74")
def test_lower_high_watermark_in_the_same_session_is_ignored() -> None:
    follower = pushed(0, batch(0, 40))
    follower.push(entry(high_watermark=30))
    follower.push(entry(high_watermark=20))
    assert follower.log.high_watermark == 30


def test_first_high_watermark_of_a_session_counts_even_if_it_is_lower() -> None:
    follower = Following().fill(batch(0, 40))
    follower.log.high_watermark = 30
    follower.push(entry(append_offset=40, last_epoch=EPOCH, high_watermark=20))
    assert follower.log.high_watermark == 20


@pytest.mark.spec("push-replication F21")
@pytest.mark.spec("push-replication 75")
def test_follower_goes_back_to_pull_after_ten_seconds_of_silence() -> None:
    follower = pushed(3)
    assert not follower.followed.check_silence(now_s=follower.now_s + 9.9)
    assert follower.followed.check_silence(now_s=follower.now_s + 10)
    assert (follower.mode, follower.followed.session_id) == (PULL, 4)


def test_keepalive_of_the_session_is_no_silence_and_a_refused_entry_is() -> None:
    follower = pushed(3, batch(0, 10))
    follower.now_s += 9
    assert follower.push(entry(session_id=3)).error_code == 0
    assert not follower.followed.check_silence(now_s=follower.now_s + 9)
    follower.now_s += 9
    follower.push(entry(session_id=3, append_offset=12, records=batch(12)))
    assert follower.followed.check_silence(now_s=follower.now_s + 1)


def test_higher_leader_epoch_ends_the_session_and_compares_the_logs() -> None:
    follower = pushed(3, batch(0, 10))
    assert follower.followed.follow(LeaderClaim(2, 8), now_s=follower.now_s)
    assert (follower.mode, follower.followed.session_id) == (PULL, 4)
    assert follower.followed.stage is FetchStage.TRUNCATING
    assert follower.push(entry(session_id=3)).error_code == PushErrorCode.FENCED_LEADER_EPOCH


# A log that retention has emptied, or whose start lies inside a batch


def emptied(at: int) -> Following:
    follower = pushed()
    follower.log._restart(at)
    return follower


def test_emptied_log_takes_records_at_its_end_whatever_the_epoch_before_was() -> None:
    answer = emptied(10).push(entry(append_offset=10, last_epoch=5, records=batch(10, 5)))
    assert (answer.error_code, answer.log_end_offset) == (0, 15)


def test_resent_records_below_the_start_of_an_emptied_log_are_acknowledged() -> None:
    follower = emptied(10)
    answer = follower.push(entry(append_offset=0, records=batch(0, 5) + batch(5, 5)))
    assert (answer.error_code, answer.log_end_offset) == (0, 10)
    assert not follower.log.batches


def test_records_across_the_start_of_an_emptied_log_are_appended_from_the_start_on() -> None:
    follower = emptied(10)
    answer = follower.push(entry(append_offset=5, records=batch(5, 5) + batch(10, 5)))
    assert (answer.error_code, answer.log_end_offset, answer.log_start_offset) == (0, 15, 10)


def test_batch_across_the_start_of_an_empty_log_begins_the_log_again_at_its_base() -> None:
    follower = emptied(10)
    sent = entry(append_offset=8, records=batch(8, 5), high_watermark=13, log_start_offset=10)
    answer = follower.push(sent)
    assert (answer.error_code, answer.log_end_offset, answer.log_start_offset) == (0, 13, 10)
    assert follower.log.content == batch(8, 5)


def test_leader_whose_log_begins_at_the_followers_end_begins_a_session() -> None:
    follower = Following().fill(batch(0, 10))
    answer = follower.push(entry(append_offset=10, last_epoch=-1, log_start_offset=10, high_watermark=10))
    assert (answer.error_code, follower.mode) == (0, PUSH)
    assert answer.log_start_offset == 10
