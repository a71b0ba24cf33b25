"""Answers to AppendRecords: acknowledgements, errors, retries, resync, timeouts (push-replication 2.7, 2.8, 7)."""

import pytest

from tests.replication.leader.push_story import HeldRange, PushStory, batch, session, topic_partition
from tierd.replication.leader.pushing.append_reactions import RetryLater, reaction_to
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.model.messages import AppendRecordsResponse
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PushSessionEndReason

REASON = PushSessionEndReason
CODE = PushErrorCode


@pytest.mark.spec("push-replication 43")
def test_acknowledgement_calls_back_once_and_completes_requests_after_a_rise() -> None:
    story, mine = PushStory(), session()
    story.start(mine, at=9)
    mine.rises, mine.calls[:] = True, []
    story.append(9)
    story.answer()
    assert mine.acks[-1] == (10, 0)
    assert mine.calls == ["ack", "complete"]


@pytest.mark.spec("push-replication 44")
def test_acknowledgement_without_a_rise_completes_no_request() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append(0)
    story.answer()
    assert mine.calls == ["ack", "ack"]


def test_acknowledgement_has_the_time_at_which_its_request_was_sent() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.wait(1)
    story.append(0)
    story.wait(0.5)
    story.answer()
    assert mine.sent_at_s[-1] == 1.0


@pytest.mark.spec("push-replication 45")
@pytest.mark.parametrize("reason", [REASON.NEW_LEADER_EPOCH, REASON.LEADER_RESIGNED])
def test_answer_for_an_ended_session_calls_nothing_back(reason: PushSessionEndReason) -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append(0)
    story.stop(reason)
    mine.calls.clear()
    story.answer_all()
    assert mine.calls == []


@pytest.mark.spec("push-replication 50")
def test_unknown_leader_epoch_is_retried_with_backoff() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append(0)
    for delay_s in (0.1, 0.2, 0.4):
        story.answer(CODE.UNKNOWN_LEADER_EPOCH)
        story.wait(delay_s - 0.01)
        assert not story.outstanding
        story.wait(0.01)
        assert story.records() == [[0]]
    story.answer()
    assert (mine.acks[-1], mine.ends) == ((1, 0), [])
    assert story.router.counters.retries[CODE.UNKNOWN_LEADER_EPOCH] == 3


@pytest.mark.spec("push-replication 51")
def test_fenced_leader_epoch_ends_the_session_and_doubts_the_leadership() -> None:
    story, mine, other = PushStory(), session(0), session(1)
    story.start(mine, other)
    story.append(0)
    story.answer(CODE.FENCED_LEADER_EPOCH)
    assert mine.ends == [REASON.NEW_LEADER_EPOCH]
    assert other.ends == []
    assert story.doubts == [(topic_partition(), 1)]


@pytest.mark.spec("push-replication 52")
@pytest.mark.parametrize(("leo", "left"), [(3, [3, 4, 5]), (2, [2, 3, 4, 5]), (5, [5])])
def test_offset_mismatch_inside_what_is_queued_goes_on_from_there(leo: int, left: list[int]) -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append(0)
    story.answer()
    story.append(1)
    story.append_bytes(2, batch(2) + batch(3), 4)
    story.append_bytes(4, batch(4) + batch(5), 6)
    story.answer(CODE.APPEND_OFFSET_MISMATCH, leo=leo)
    assert story.records() == [left]
    assert (story.parts()[0].append_offset, story.parts()[0].last_epoch) == (leo, 1)
    story.answer()
    assert mine.ends == []
    assert (story.router.counters.resyncs, story.used_bytes) == (1, 0)


@pytest.mark.spec("push-replication 53")
def test_offset_mismatch_below_what_was_acknowledged_ends_the_session() -> None:
    story, mine = PushStory(), session()
    story.start(mine, at=5)
    story.append(5)
    story.answer(CODE.APPEND_OFFSET_MISMATCH, leo=4)
    assert mine.ends == [REASON.FOLLOWER_OFFSET_GAP]


def test_offset_mismatch_inside_a_batch_ends_the_session() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append(0, count=10)
    story.answer(CODE.APPEND_OFFSET_MISMATCH, leo=5)
    assert mine.ends == [REASON.FOLLOWER_OFFSET_GAP]


def test_offset_mismatch_above_what_was_appended_means_that_the_logs_diverged() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append(0)
    story.answer(CODE.APPEND_OFFSET_MISMATCH, leo=2)
    assert mine.ends == [REASON.FOLLOWER_LOG_DIVERGED]


def test_offset_mismatch_without_a_difference_waits_before_it_is_sent_again() -> None:
    story = PushStory()
    story.start(session())
    story.append(0)
    story.answer(CODE.APPEND_OFFSET_MISMATCH, leo=0)
    assert not story.outstanding
    story.wait(0.1)
    assert story.records() == [[0]]


@pytest.mark.spec("push-replication 54")
@pytest.mark.parametrize("code", [999, -1000, CODE.INVALID_REQUEST, CODE.INVALID_RECORD, CODE.KAFKA_STORAGE_ERROR])
def test_unknown_and_final_codes_end_the_session(code: int) -> None:
    story, mine, other = PushStory(), session(0), session(1)
    story.start(mine, other)
    story.append(0)
    story.answer(code)
    assert mine.ends == [REASON.REQUEST_NON_RETRIABLE_ERROR]
    assert other.ends == []
    assert not story.outstanding


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (CODE.OFFSET_OUT_OF_RANGE, REASON.FOLLOWER_OFFSET_GAP),
        (CODE.NOT_LEADER_OR_FOLLOWER, REASON.REQUEST_NON_RETRIABLE_ERROR),
        (CODE.MESSAGE_TOO_LARGE, REASON.RECORDS_TOO_LARGE),
        (CODE.RECORD_LIST_TOO_LARGE, REASON.RECORDS_TOO_LARGE),
        (CODE.INCONSISTENT_TOPIC_ID, REASON.PARTITION_DELETED),
        (CODE.STALE_REPLICATION_SESSION, REASON.FOLLOWER_RETURNED_TO_PULL),
        (CODE.LOG_DIVERGED, REASON.FOLLOWER_LOG_DIVERGED),
    ],
)
def test_code_ends_one_session_with_its_reason(code: PushErrorCode, reason: PushSessionEndReason) -> None:
    story, mine, other = PushStory(), session(0), session(1)
    story.start(mine, other)
    story.append(0)
    story.answer(code)
    assert (mine.ends, other.ends) == ([reason], [])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (CODE.CLUSTER_AUTHORIZATION_FAILED, REASON.REQUEST_NON_RETRIABLE_ERROR),
        (CODE.UNSUPPORTED_VERSION, REASON.PUSH_DISABLED),
        (CODE.STALE_BROKER_EPOCH, REASON.FOLLOWER_RESTARTED),
        (CODE.INCONSISTENT_CLUSTER_ID, REASON.REQUEST_NON_RETRIABLE_ERROR),
    ],
)
def test_code_of_a_whole_request_ends_all_sessions_of_the_peer(
    code: PushErrorCode, reason: PushSessionEndReason
) -> None:
    story, mine = PushStory(), [session(partition) for partition in range(3)]
    story.start(*mine)
    story.append(0)
    story.answer(code=code)
    story.answer_all()
    assert [each.ends for each in mine] == [[reason]] * 3


def test_every_retriable_code_leaves_the_session_alone() -> None:
    retried = [code for code in PushErrorCode if isinstance(reaction_to(code), RetryLater)]
    assert retried == [
        CODE.UNKNOWN_TOPIC_OR_PARTITION,
        CODE.REQUEST_TIMED_OUT,
        CODE.UNKNOWN_LEADER_EPOCH,
        CODE.THROTTLING_QUOTA_EXCEEDED,
        CODE.UNKNOWN_TOPIC_ID,
        CODE.FOLLOWER_BUSY,
    ]
    for code in retried:
        story, mine = PushStory(), session()
        story.start(mine)
        story.append(0)
        story.answer(code)
        story.wait(1)
        story.answer()
        assert (mine.acks[-1], mine.ends) == ((1, 0), [])


def test_answer_that_lacks_the_partition_is_retried() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append(0)
    story.respond(story.outstanding.pop(), AppendRecordsResponse())
    story.wait(1)
    assert story.records() == [[0]]
    assert mine.ends == []


def test_success_that_does_not_have_the_records_is_retried_with_backoff() -> None:
    story = PushStory()
    story.start(session())
    story.append(0)
    story.answer(leo=0)
    assert not story.outstanding
    story.wait(0.1)
    assert story.records() == [[0]]


def test_throttled_peer_gets_nothing_until_the_time_that_it_named() -> None:
    story = PushStory()
    story.start(session())
    story.append(0)
    story.answer(throttle_ms=700)
    story.append(1)
    story.wait(0.69)
    assert not story.outstanding
    story.wait(0.02)
    assert story.records() == [[1]]


def test_corrupt_records_that_are_intact_here_are_sent_once_more() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append(0)
    story.answer(CODE.CORRUPT_MESSAGE)
    assert story.records() == [[0]]
    story.answer(CODE.CORRUPT_MESSAGE)
    assert mine.ends == [REASON.LEADER_REPLICATION_ERROR]


def test_corrupt_records_that_are_corrupt_here_end_the_session_at_once() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    damaged = bytearray(batch(0))
    damaged[70] ^= 1
    story.append_bytes(0, bytes(damaged), 1)
    story.answer(CODE.CORRUPT_MESSAGE)
    assert mine.ends == [REASON.LEADER_REPLICATION_ERROR]


def test_corrupt_chunk_of_a_file_is_read_again() -> None:
    story, file = PushStory(), HeldRange(0, 2, batch(0) + batch(1))
    story.open(session(), file)
    story.answer(CODE.CORRUPT_MESSAGE)
    assert file.reads == [0, 0]
    story.answer()
    assert (file.closed, story.used_bytes) == (1, 0)


def test_chunk_that_was_taken_in_part_goes_on_behind_that_part_after_it_is_read_again() -> None:
    story, file = PushStory(), HeldRange(0, 3, batch(0) + batch(1, epoch=2) + batch(2, epoch=3))
    story.open(session(), file)
    story.answer(CODE.APPEND_OFFSET_MISMATCH, leo=2)
    assert story.records() == [[2]]
    story.answer(CODE.CORRUPT_MESSAGE)
    assert story.records() == [[2]]
    assert (story.parts()[0].append_offset, story.parts()[0].last_epoch) == (2, 2)
    story.answer()
    assert (file.closed, story.used_bytes) == (1, 0)


@pytest.mark.spec("push-replication 55")
def test_request_without_an_answer_closes_the_link_and_goes_out_again_on_the_next_one() -> None:
    story = PushStory()
    story.start(session())
    story.append(0)
    story.wait(9.9)
    assert story.closed_links == []
    story.wait(0.1)
    assert len(story.closed_links) == 1
    story.wait(0.1)
    assert len(story.opened_links) == 2
    assert story.sent[-1] == story.sent[-2]
    story.answer()
    assert story.used_bytes == 0


def test_answer_of_a_link_that_was_given_up_is_ignored() -> None:
    story, mine = PushStory(), session()
    story.closes_at_once = False
    story.start(mine)
    story.append(0)
    late = story.outstanding[0]
    story.wait(10)
    mine.calls.clear()
    story.respond(late, AppendRecordsResponse())
    assert mine.calls == []


def test_connection_is_tried_again_with_a_doubling_wait_up_to_five_seconds() -> None:
    story = PushStory()
    story.is_reachable = False
    story.open(session(), HeldRange(0, 0))
    tries = [len(story.opened_links)]
    for _ in range(12):
        story.wait(1)
        tries.append(len(story.opened_links))
    assert tries == [1, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 8]


@pytest.mark.spec("push-replication 56")
def test_session_without_progress_ends_and_queues_a_signal() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.is_reachable = False
    story.append(0)
    story.break_links()
    story.wait(14.9)
    assert mine.ends == []
    story.wait(0.1)
    assert mine.ends == [REASON.REQUEST_RETRIES_EXHAUSTED]
    assert story.used_bytes == 0
    story.is_reachable = True
    story.wait(10)
    (part,) = story.parts()
    assert part.end_session
    assert part.end_reason == REASON.REQUEST_RETRIES_EXHAUSTED


def test_session_with_progress_lives_however_old_its_queue_is() -> None:
    story, mine = PushStory(partition_max_bytes=100, file_chunk_bytes=100), session()
    story.start(mine)
    for offset in range(20):
        story.append(offset)
    for _ in range(20):
        story.wait(5)
        story.answer()
    assert mine.ends == []
    assert mine.acks[-1] == (20, 0)


@pytest.mark.spec("push-replication 57")
def test_signal_without_an_answer_is_given_up_after_a_minute() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.is_reachable = False
    story.stop(REASON.LEADER_RESIGNED)
    story.break_links()
    story.wait(59)
    assert [slot.is_live for slot in story.router.sessions()] == [False]
    story.wait(1)
    assert list(story.router.sessions()) == []
    before = len(story.opened_links)
    story.wait(100)
    assert len(story.opened_links) == before


def test_signal_is_repeated_after_a_retriable_answer() -> None:
    story = PushStory()
    story.start(session())
    story.stop(REASON.LEADER_RESIGNED)
    story.answer(CODE.FOLLOWER_BUSY)
    story.wait(1)
    assert story.parts()[0].end_session
    story.answer()
    assert list(story.router.sessions()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"pushers_per_peer": 5},
        {"buffer_max_bytes": 10 << 20},
        {"session_buffer_max_bytes": 300 << 20},
        {"in_flight_per_peer": 6},
        {"linger_s": 3.0},
        {"session_unacked_max_s": 16.0},
        {"keepalive_s": 4.0},
        {"transition_memory_fraction": 1.5},
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="settings of push replication need"):
        PushSettings(**wrong)  # type: ignore[arg-type]
