"""Sessions of a router: registration, ends, signals (push-replication 1.4, 1.5, 7)."""

import pytest

from tests.replication.leader.push_story import HeldRange, PushStory, batch, session, topic_partition
from tierd.replication.leader.logs.record_memory import MemoryRecords
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PushSessionEndReason

REASON = PushSessionEndReason
NOTIFYING = [reason for reason in REASON if reason.notify_follower]
SILENT = [reason for reason in REASON if not reason.notify_follower]


@pytest.mark.spec("push-replication 11")
def test_append_without_a_session_is_not_charged_and_not_sent() -> None:
    story = PushStory()
    story.append(0)
    story.wait(100)
    assert (story.sent, story.opened_links, story.used_bytes) == ([], [], 0)


def test_file_range_without_a_session_is_closed() -> None:
    story = PushStory()
    file = HeldRange(0, 1, batch(0))
    story.router.on_leader_append(topic_partition(), [1], 0, file, now_s=0.0)
    story.step()
    assert file.closed == 1


@pytest.mark.spec("push-replication 12")
def test_append_for_two_replicas_reaches_the_one_with_a_session() -> None:
    story = PushStory()
    story.start(session())
    story.append(0, replicas=(1, 2))
    assert story.records() == [[0]]
    assert len(story.outstanding) == 1
    assert story.used_bytes == 100


def test_append_for_no_replica_and_empty_append_do_nothing() -> None:
    story = PushStory()
    story.start(session())
    before = len(story.sent)
    story.append(0, replicas=())
    story.append_bytes(0, b"", 0)
    assert len(story.sent) == before
    story.append(0)
    assert story.records() == [[0]]


@pytest.mark.spec("push-replication 13")
def test_session_that_is_started_twice_makes_one_opening_request() -> None:
    story = PushStory()
    mine = session()
    story.open(mine, HeldRange(0, 0))
    story.open(session())
    story.answer_all()
    assert len(story.sent) == 1
    assert mine.ends == []
    assert len(list(story.router.sessions())) == 1


@pytest.mark.spec("push-replication 14")
def test_newer_session_supersedes_the_older_one_without_a_signal() -> None:
    story, older, newer = PushStory(), session(session_id=5), session(session_id=6)
    story.start(older)
    story.append(0)
    story.open(newer, HeldRange(1, 1))
    story.answer_all()
    story.wait(1)
    assert older.ends == [REASON.SUPERSEDED]
    assert not any(part.end_session for request in story.sent for part in request.partitions)
    assert story.parts()[0].session_id == 6
    assert newer.acks == [(1, 0)]


@pytest.mark.spec("push-replication 15")
def test_older_session_is_ignored() -> None:
    story, newer, older = PushStory(), session(session_id=6), session(session_id=5)
    story.start(newer)
    story.open(older)
    story.append(0)
    assert story.parts()[0].session_id == 6
    assert (newer.ends, older.ends) == ([], [])
    assert story.router.counters.ignored_sessions == 1


@pytest.mark.parametrize(
    "newer",
    [
        session(leader_epoch=2, replica_epoch=100, session_id=1),
        session(leader_epoch=1, replica_epoch=101, session_id=0),
        session(leader_epoch=1, replica_epoch=100, session_id=6),
    ],
)
def test_leader_epoch_then_replica_epoch_then_session_id_tell_the_newer_session(newer: object) -> None:
    assert isinstance(newer, type(session()))
    older = session(leader_epoch=1, replica_epoch=100, session_id=5)
    assert newer.identity.is_newer_than(older.identity)
    assert not older.identity.is_newer_than(newer.identity)


@pytest.mark.spec("push-replication 16")
def test_session_that_is_stopped_twice_ends_once_and_signals_once() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.stop(REASON.LEADER_RESIGNED)
    story.stop(REASON.PUSH_DISABLED)
    story.answer_all()
    story.wait(100)
    assert mine.ends == [REASON.LEADER_RESIGNED]
    assert sum(part.end_session for request in story.sent for part in request.partitions) == 1


@pytest.mark.spec("push-replication 17")
def test_stop_without_a_session_does_nothing() -> None:
    story = PushStory()
    story.stop(REASON.LEADER_RESIGNED)
    story.wait(100)
    assert story.sent == []


@pytest.mark.spec("push-replication 18")
@pytest.mark.parametrize("reason", NOTIFYING)
def test_end_that_the_follower_is_told_is_flagged_in_the_next_request_without_records(
    reason: PushSessionEndReason,
) -> None:
    story = PushStory()
    story.start(session())
    story.append(0)
    story.append(1)
    story.stop(reason)
    story.answer()
    (part,) = story.parts()
    assert (part.end_session, part.end_reason, part.records) == (True, reason.value, None)
    story.answer()
    assert list(story.router.sessions()) == []


@pytest.mark.spec("push-replication 19")
@pytest.mark.parametrize("reason", SILENT)
def test_end_that_the_follower_knows_is_not_sent(reason: PushSessionEndReason) -> None:
    story = PushStory()
    story.start(session())
    story.append(0)
    story.stop(reason)
    story.answer_all()
    story.wait(100)
    assert not any(part.end_session for request in story.sent for part in request.partitions)
    assert list(story.router.sessions()) == []


@pytest.mark.spec("push-replication 20")
def test_append_after_the_end_is_not_sent() -> None:
    story = PushStory()
    story.start(session())
    story.stop(REASON.NEW_LEADER_EPOCH)
    before = len(story.sent)
    story.append(0)
    story.wait(10)
    assert len(story.sent) == before
    assert story.used_bytes == 0


@pytest.mark.spec("push-replication 21")
def test_follower_that_restarted_ends_all_sessions_of_the_peer() -> None:
    story = PushStory(pushers_per_peer=2)
    mine = [session(partition) for partition in range(8)]
    other = session(0, replica=2)
    story.start(*mine, other)
    story.append(0, partition=3)
    story.answer(PushErrorCode.STALE_BROKER_EPOCH)
    assert [each.ends for each in mine] == [[REASON.FOLLOWER_RESTARTED]] * 8
    assert other.ends == []
    story.append(0, partition=0, replicas=(2,))
    assert story.records() == [[0]]


def test_session_of_a_new_process_of_the_follower_ends_those_of_the_old_one() -> None:
    story, old, new = PushStory(), session(0), session(1, replica_epoch=101)
    story.start(old)
    story.open(new, HeldRange(0, 0))
    assert old.ends == [REASON.FOLLOWER_RESTARTED]
    assert story.sent[-1].replica_epoch == 101


def test_session_of_an_old_process_of_the_follower_ends_at_once() -> None:
    story, new, old = PushStory(), session(0, replica_epoch=101), session(1)
    story.start(new)
    story.open(old, HeldRange(0, 0))
    assert old.ends == [REASON.FOLLOWER_RESTARTED]
    assert new.ends == []


def test_hello_of_a_new_process_of_the_follower_ends_the_sessions_of_the_old_one() -> None:
    story, mine = PushStory(), session(replica_epoch=99)  # the Hello names 100
    story.open(mine, HeldRange(0, 0))
    assert mine.ends == [REASON.FOLLOWER_RESTARTED]
    assert story.sent == []


def test_new_session_replaces_the_signal_of_the_last_end() -> None:
    story, new = PushStory(), session(session_id=6)
    story.start(session(session_id=5))
    story.append(0)
    story.stop(REASON.FOLLOWER_OUT_OF_ISR)
    story.open(new, HeldRange(1, 1))
    story.answer_all()
    assert not any(part.end_session for request in story.sent for part in request.partitions)
    assert [part.session_id for part in story.parts()] == [6]


def test_file_range_that_does_not_begin_the_session_ends_it() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    file = HeldRange(0, 1, batch(0))
    story.router.on_leader_append(topic_partition(), [1], 0, file, now_s=0.0)
    story.step()
    assert mine.ends == [REASON.LEADER_REPLICATION_ERROR]
    assert file.closed == 1


def test_session_may_begin_with_records_from_memory() -> None:
    story, mine = PushStory(), session()
    story.open(mine)
    story.router.on_leader_append(topic_partition(), [1], 4, MemoryRecords(batch(4), 5), last_epoch=1, now_s=0.0)
    story.append(5)
    assert (story.parts()[0].append_offset, story.parts()[0].last_epoch) == (4, 1)
    assert story.records() == [[4]]
    story.answer()
    assert story.records() == [[5]]


def test_file_range_that_cannot_be_read_ends_the_session_and_is_closed() -> None:
    story, mine = PushStory(), session()
    file = HeldRange(0, 1, batch(0))
    file.is_readable = False
    story.open(mine, file)
    assert mine.ends == [REASON.LEADER_REPLICATION_ERROR]
    assert (file.closed, story.used_bytes) == (1, 0)


def test_file_range_of_a_session_that_ends_during_a_read_is_closed_after_the_read() -> None:
    story, mine = PushStory(), session()
    story.reads_at_once = False
    file = HeldRange(0, 1, batch(0))
    story.open(mine, file)
    story.stop(REASON.NEW_LEADER_EPOCH)
    assert (file.closed, story.used_bytes > 0) == (0, True)
    story.read()
    assert (file.closed, story.used_bytes) == (1, 0)


def test_link_without_a_session_is_closed_after_a_while() -> None:
    story = PushStory()
    story.start(session())
    story.stop(REASON.NEW_LEADER_EPOCH)
    story.wait(9.9)
    assert story.closed_links == []
    story.wait(0.2)
    assert len(story.closed_links) == 1
    story.wait(1000)
    assert len(story.opened_links) == 1
