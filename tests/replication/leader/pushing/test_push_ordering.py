"""Requests of a pusher: order, batching, limits, watermarks, keepalive (push-replication 2.4, 7)."""

from uuid import UUID

import pytest

from tests.replication.leader.push_story import HeldRange, PushStory, batch, data_of, session
from tierd.replication.leader.pushing.push_router import pusher_of
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.pushing.session_slot import SessionSlot
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PushSessionEndReason

MIB = 1 << 20


@pytest.mark.spec("push-replication 22")
def test_opening_range_is_sent_and_acknowledged_before_any_record_from_memory() -> None:
    story = PushStory()
    story.open(session(), HeldRange(0, 100, batch(0, count=100, size=300)))
    story.append(100, count=10)
    assert story.records() == [[0]]
    assert len(story.outstanding) == 1
    story.answer()
    assert story.records() == [[100]]


@pytest.mark.spec("push-replication 23")
def test_records_from_memory_stay_behind_an_opening_range_that_failed() -> None:
    story = PushStory()
    story.open(session(), HeldRange(0, 100, batch(0, count=100)))
    story.append(100)
    story.answer(PushErrorCode.UNKNOWN_LEADER_EPOCH)
    story.wait(1)
    assert story.records() == [[0]]
    assert len(story.sent) == 2
    story.answer()
    assert story.records() == [[100]]


@pytest.mark.spec("push-replication 24")
def test_appends_that_wait_for_an_answer_travel_in_one_request_in_order() -> None:
    story = PushStory()
    story.start(session())
    story.append(0)
    for offset in range(1, 11):
        story.append(offset)
    assert len(story.outstanding) == 1
    story.answer()
    assert story.records() == [list(range(1, 11))]
    assert story.parts()[0].append_offset == 1


@pytest.mark.spec("push-replication 25")
def test_append_behind_a_hole_ends_the_session_unsent() -> None:
    story, mine = PushStory(), session()
    story.start(mine, at=10)
    before = len(story.sent)
    story.append(12)
    assert mine.ends == [PushSessionEndReason.LEADER_REPLICATION_ERROR]
    assert all(part.end_session for request in story.sent[before:] for part in request.partitions)


def test_append_that_overlaps_the_last_one_ends_the_session() -> None:
    story, mine = PushStory(), session()
    story.start(mine, at=10)
    story.append(9, count=3)
    assert mine.ends == [PushSessionEndReason.LEADER_REPLICATION_ERROR]


def test_append_of_bytes_that_are_no_batches_ends_the_session() -> None:
    story, mine = PushStory(), session()
    story.start(mine)
    story.append_bytes(0, batch(0)[:-1], 1)
    assert mine.ends == [PushSessionEndReason.LEADER_REPLICATION_ERROR]
    assert story.used_bytes == 0


@pytest.mark.spec("push-replication 26")
def test_partition_with_a_retriable_error_does_not_delay_another() -> None:
    story, slow, fast = PushStory(), session(0), session(1)
    story.start(slow, fast)
    story.append(0, partition=0)
    story.answer(PushErrorCode.FOLLOWER_BUSY)
    story.append(0, partition=1)
    story.answer()
    story.append(1, partition=1)
    story.answer()
    assert [ack[0] for ack in fast.acks] == [0, 1, 2]
    assert slow.acks == [(0, 0)]


@pytest.mark.spec("push-replication 27")
def test_batch_above_the_limit_of_a_partition_is_sent_alone() -> None:
    story = PushStory()
    story.start(session())
    story.append(0)
    for offset, size in ((1, 100), (2, 3 * MIB), (3, 100)):
        story.append(offset, size=size)
    sent = []
    while story.outstanding:
        story.answer()
        sent.append(story.records()[0])
    assert sent[:3] == [[1], [2], [3]]


def test_batch_above_the_limit_of_a_request_is_sent_in_a_request_of_its_own() -> None:
    story = PushStory(request_max_bytes=2 * MIB, partition_max_bytes=MIB)
    story.start(session(0), session(1))
    story.append(0, partition=0)
    story.append(1, partition=0)
    story.append(0, partition=1, size=3 * MIB)
    story.answer()
    assert [part.partition for part in story.parts()] == [1]
    story.answer()
    assert [part.partition for part in story.parts()] == [0]


def test_append_of_several_batches_is_cut_between_batches_at_the_limit_of_a_partition() -> None:
    story = PushStory(partition_max_bytes=1000, file_chunk_bytes=1000)
    story.start(session())
    story.append_bytes(0, b"".join(batch(offset, size=400) for offset in range(5)), 5)
    assert story.records() == [[0, 1]]
    story.answer()
    assert story.records() == [[2, 3]]
    assert story.parts()[0].last_epoch == 1
    story.answer()
    assert story.records() == [[4]]
    story.answer()
    assert story.used_bytes == 0


@pytest.mark.spec("push-replication 28")
def test_slots_that_a_full_request_left_out_are_the_first_of_the_next() -> None:
    story = PushStory(request_max_bytes=2000, partition_max_bytes=1000, file_chunk_bytes=1000)
    story.start(*(session(partition) for partition in range(5)))
    story.append(0, partition=0, size=900)
    for partition in range(5):
        story.append(1 if partition == 0 else 0, partition=partition, size=900)
    story.answer()
    assert [part.partition for part in story.parts()] == [1, 2]
    story.append(1, partition=1, size=900)
    story.answer()
    assert [part.partition for part in story.parts()] == [3, 4]


@pytest.mark.spec("push-replication 29")
def test_watermarks_without_records_travel_as_the_newest_one_within_the_linger() -> None:
    story = PushStory()
    story.start(session(), at=10)
    before = len(story.sent)
    for offset in (5, 7, 6):
        story.high_watermark(offset)
    assert len(story.sent) == before
    story.wait(story.settings.high_watermark_linger_s)
    assert [part.high_watermark for part in story.parts()] == [7]
    assert story.parts()[0].records is None
    story.answer()
    story.wait(1)
    assert len(story.sent) == before + 1


@pytest.mark.spec("push-replication 30")
def test_watermark_travels_with_the_append_that_follows_it() -> None:
    story = PushStory()
    story.start(session(), at=10)
    story.high_watermark(10)
    story.append(10)
    assert [(part.high_watermark, part.append_offset) for part in story.parts()] == [(10, 10)]
    assert story.records() == [[10]]


def test_watermark_above_what_the_follower_will_have_is_sent_in_parts_with_the_records() -> None:
    story = PushStory(partition_max_bytes=100, file_chunk_bytes=100)
    story.start(session())
    story.append_bytes(0, b"".join(batch(offset) for offset in range(3)), 3)
    story.high_watermark(3)
    sent = [story.parts()[0].high_watermark]
    while story.outstanding:
        story.answer()
        sent.append(story.parts()[0].high_watermark)
        story.wait(0.01)
    assert sent[:3] == [-1, 2, 3]


def test_watermark_of_a_request_that_was_lost_is_sent_again() -> None:
    story = PushStory()
    story.start(session(), at=10)
    story.high_watermark(9)
    story.wait(0.01)
    story.break_links()
    story.wait(0.2)
    assert [part.high_watermark for part in story.parts()] == [9]


def test_log_start_offset_is_sent_once() -> None:
    story = PushStory()
    story.start(session(), at=10)
    story.log_start(4)
    story.log_start(3)
    story.wait(0.01)
    story.answer()
    assert story.parts()[0].log_start_offset == 4
    story.append(10)
    assert story.parts()[0].log_start_offset == -1


@pytest.mark.spec("push-replication 31")
def test_link_with_a_window_of_one_has_one_outstanding_request() -> None:
    story = PushStory()
    story.start(*(session(partition) for partition in range(10)))
    for partition in range(10):
        story.append(0, partition=partition)
        assert len(story.outstanding) == 1
    while story.outstanding:
        story.answer()
        assert len(story.outstanding) <= 1


def test_window_of_two_never_has_a_slot_in_two_requests() -> None:
    story = PushStory(in_flight_per_peer=2)
    story.start(session(0), session(1))
    story.append(0, partition=0)
    story.append(1, partition=0)
    assert len(story.outstanding) == 1
    story.append(0, partition=1)
    assert [part.partition for request in story.sent[-2:] for part in request.partitions] == [0, 1]
    assert len(story.outstanding) == 2


@pytest.mark.spec("push-replication 32")
def test_partition_replica_has_the_same_pusher_in_every_process() -> None:
    settings = PushSettings(pushers_per_peer=2)
    topic_id = UUID("12345678-1234-5678-1234-567812345678")
    assert [pusher_of(topic_id, partition, 3, settings) for partition in range(8)] == [2, 2, 3, 2, 2, 2, 3, 2]
    assert {pusher_of(topic_id, partition, 3, PushSettings()) for partition in range(8)} == {3}


@pytest.mark.spec("push-replication 33")
def test_idle_session_is_listed_without_records_every_three_seconds() -> None:
    story = PushStory()
    story.start(session())
    before = len(story.sent)
    for _ in range(3):
        story.wait(2.9)
        assert not story.outstanding
        story.wait(0.1)
        part = story.parts()[0]
        assert (part.records, part.append_offset, part.high_watermark) == (None, -1, -1)
        story.answer()
    assert len(story.sent) == before + 3


def test_keepalives_of_sessions_that_fell_silent_one_after_the_other_share_a_request() -> None:
    story = PushStory()
    for partition in range(6):
        story.start(session(partition))
        story.wait(0.05)
    before = len(story.sent)
    story.wait(2.95)
    (request,) = story.sent[before:]
    assert len(request.partitions) == 6
    story.answer()


@pytest.mark.spec("push-replication 34")
def test_empty_opening_range_makes_a_request_and_lets_records_follow_its_acknowledgement() -> None:
    story = PushStory()
    file = HeldRange(7, 7)
    story.open(session(), file, last_epoch=3)
    story.append(7)
    part = story.parts()[0]
    assert (part.append_offset, part.last_epoch, part.records) == (7, 3, None)
    story.answer()
    assert story.records() == [[7]]
    assert story.parts()[0].last_epoch == 3
    assert file.closed == 1


def test_records_wait_for_the_linger_unless_there_are_enough() -> None:
    story = PushStory(linger_s=0.5, batch_min_bytes=300)
    story.start(session())
    before = len(story.sent)
    story.append(0)
    story.wait(0.4)
    assert len(story.sent) == before
    story.append(1)
    story.append(2)
    assert story.records() == [[0, 1, 2]]
    story.answer()
    story.append(3)
    story.wait(0.5)
    assert story.records() == [[3]]


def test_opening_range_is_sent_chunk_by_chunk_with_the_expected_offsets_and_epochs() -> None:
    data = b"".join(batch(offset, size=100, epoch=offset) for offset in range(5))
    story = PushStory(file_chunk_bytes=250)
    story.open(session(), HeldRange(0, 5, data), last_epoch=-1)
    seen = []
    while story.outstanding:
        part = story.parts()[0]
        seen.append((part.append_offset, part.last_epoch, data_of(part)))
        story.answer()
    assert [each[:2] for each in seen] == [(0, -1), (2, 1), (4, 3)]
    assert b"".join(each[2] for each in seen) == data


def test_request_has_a_bounded_number_of_partitions() -> None:
    story = PushStory()
    story.start(*(session(partition) for partition in range(1100)))
    story.wait(3)
    while story.outstanding:
        story.answer()
    assert max(len(request.partitions) for request in story.sent) == 512
    assert sum(len(request.partitions) for request in story.sent[-3:]) == 1100


@pytest.mark.parametrize("others", [10, 1000])
def test_event_costs_work_for_its_own_session_only(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    story = PushStory()
    story.start(*(session(partition) for partition in range(others)))
    looks = []
    due_at_s = SessionSlot.due_at_s

    def counted(slot: SessionSlot, settings: PushSettings) -> float:
        looks.append(slot)
        return due_at_s(slot, settings)

    monkeypatch.setattr(SessionSlot, "due_at_s", counted)
    story.append(0, partition=7)
    story.high_watermark(0, partition=7)
    story.answer()
    assert {slot.session.identity.partition.partition for slot in looks} == {7}
    assert len(looks) <= 5


def test_turn_looks_at_a_bounded_number_of_sessions() -> None:
    story = PushStory()
    story.start(*(session(partition) for partition in range(1100)))
    story.now_s += 100
    story.router.advance(story.now_s)
    assert story.router.pushers[1].queue_depth < 1000
    assert story.router.deadline_s <= story.now_s
    story.answer_all()
    assert not story.outstanding
