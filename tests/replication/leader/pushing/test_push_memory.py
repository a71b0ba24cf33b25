"""Memory of push replication: charges, caps, overflow (push-replication 2.5, 7)."""

import inspect

import pytest

from tests.replication.leader.push_story import HeldRange, PushStory, batch, session, topic_partition
from tierd.replication.leader.logs.record_memory import MemoryRecords, PushMemoryBudget, RecordsRef
from tierd.replication.model.push_session import PushSessionEndReason

REASON = PushSessionEndReason
SMALL = {"request_max_bytes": 200, "partition_max_bytes": 200, "file_chunk_bytes": 200}


@pytest.mark.spec("push-replication 35")
@pytest.mark.spec("push-replication F29")
def test_append_for_three_replicas_is_charged_once_until_the_last_acknowledgement() -> None:
    story = PushStory()
    replicas = (1, 2, 3)
    story.start(*(session(replica=replica) for replica in replicas))
    story.append(0, replicas=replicas, size=1000)
    used = [story.used_bytes]
    for _ in replicas:
        story.answer()
        used.append(story.used_bytes)
    assert used == [1000, 1000, 1000, 0]


@pytest.mark.spec("push-replication 36")
@pytest.mark.spec("push-replication F10")
def test_session_over_its_cap_ends_and_others_live() -> None:
    story = PushStory(**SMALL, buffer_max_bytes=1000, session_buffer_max_bytes=150)
    full, other = session(replica=1), session(replica=2)
    story.start(full, other)
    story.append(0, replicas=(1,), size=90)
    story.append(0, replicas=(2,), size=90)
    story.append(1, replicas=(1,), size=90)
    assert full.ends == [REASON.BUFFER_OVERFLOW]
    assert other.ends == []


@pytest.mark.spec("push-replication 37")
@pytest.mark.spec("push-replication F11")
def test_append_over_the_total_cap_ends_the_session_with_the_oldest_records() -> None:
    story = PushStory(**SMALL, buffer_max_bytes=1000, session_buffer_max_bytes=1000, pusher_buffer_fraction=1.0)
    slow, fast = session(replica=1), session(replica=2)
    story.start(slow, fast)
    for offset in range(8):
        story.append(offset, replicas=(1,))
    story.wait(0.1)
    story.append(0, replicas=(2,), size=150)
    story.append(1, replicas=(2,), size=150)
    assert slow.ends == [REASON.BUFFER_OVERFLOW]
    assert fast.ends == []
    assert story.used_bytes == 400  # 100 of them are on their way to the slow one


def test_append_over_the_cap_of_a_pusher_ends_a_session_of_that_pusher() -> None:
    story = PushStory(**SMALL, buffer_max_bytes=1000, session_buffer_max_bytes=1000, pusher_buffer_fraction=0.5)
    older, here, there = session(replica=2), session(replica=1), session(replica=5)  # 1 and 5 have one pusher
    story.start(older, here, there)
    story.append(0, replicas=(2,))
    for offset in range(4):
        story.append(offset, replicas=(1,))
    story.append(0, replicas=(5,), size=200)
    assert here.ends == [REASON.BUFFER_OVERFLOW]
    assert (older.ends, there.ends) == ([], [])


@pytest.mark.spec("push-replication 38")
@pytest.mark.spec("push-replication 42")
def test_append_larger_than_the_total_ends_the_named_sessions_and_returns() -> None:
    story = PushStory(**SMALL, buffer_max_bytes=1000, session_buffer_max_bytes=1000)
    named, other = [session(replica=1), session(replica=2)], session(replica=3)
    story.start(*named, other)
    story.append(0, replicas=(3,))
    append = story.router.on_leader_append
    append(topic_partition(), (1, 2), 0, MemoryRecords(batch(0, size=1001), 1), now_s=story.now_s)
    story.step()
    assert not inspect.iscoroutinefunction(append)
    assert [each.ends for each in named] == [[REASON.BUFFER_OVERFLOW]] * 2
    assert other.ends == []


@pytest.mark.spec("push-replication 39")
def test_records_of_an_ended_session_stay_charged_until_the_answer() -> None:
    story = PushStory()
    story.start(session())
    story.append(0, size=500)
    story.append(1, size=300)
    story.stop(REASON.BUFFER_OVERFLOW)
    assert story.used_bytes == 500
    story.answer()
    assert story.used_bytes == 0


@pytest.mark.spec("push-replication 39")
def test_records_of_an_ended_session_stay_charged_until_the_connection_is_closed() -> None:
    story = PushStory()
    story.closes_at_once = False
    story.start(session())
    story.append(0, size=500)
    story.stop(REASON.BUFFER_OVERFLOW)
    story.wait(story.settings.request_timeout_s)
    assert len(story.closed_links) == 1
    assert story.used_bytes == 500
    story.confirm_closed()
    assert story.used_bytes == 0


def test_append_that_finds_only_records_on_their_way_ends_the_named_session() -> None:
    story = PushStory(**SMALL, buffer_max_bytes=400, session_buffer_max_bytes=400, pusher_buffer_fraction=1.0)
    gone, named = session(replica=1), session(replica=2)
    story.start(gone, named)
    story.append(0, replicas=(1,), size=300)
    story.stop(REASON.BUFFER_OVERFLOW, replicas=(1,))
    story.append(0, replicas=(2,), size=200)
    assert named.ends == [REASON.BUFFER_OVERFLOW]
    assert story.used_bytes == 300


@pytest.mark.spec("push-replication 41")
def test_file_range_of_ten_gigabytes_costs_one_chunk_at_most() -> None:
    story = PushStory()
    data = b"".join(batch(offset, size=64 << 10) for offset in range(40))
    story.open(session(), HeldRange(0, 10 << 20, data, size_bytes=10 << 30))
    for _ in range(9):
        story.answer()
    assert story.router.budget.peak_bytes == story.settings.file_chunk_bytes
    assert [part.append_offset for part in story.parts()] == [36]


def test_sessions_that_open_at_once_load_a_bounded_number_of_chunks() -> None:
    story = PushStory()
    for partition in range(100):
        data = b"".join(batch(offset, size=64 << 10) for offset in range(4))
        story.open(session(partition), HeldRange(0, 4, data))
    assert story.used_bytes <= 16 * story.settings.file_chunk_bytes
    story.answer_all()
    assert story.used_bytes == 0
    assert {end for _, end in story.log_end_offsets.items()} == {4}


def test_chunk_waits_while_the_buffer_has_no_room() -> None:
    story = PushStory(**SMALL, buffer_max_bytes=400, session_buffer_max_bytes=400, pusher_buffer_fraction=1.0)
    story.start(session(0, replica=2))
    story.append(0, replicas=(2,), size=300)
    file = HeldRange(0, 1, batch(0, size=200))
    story.open(session(0, replica=1), file)
    story.wait(0.1)
    assert file.reads == []
    story.answer()
    story.wait(0.1)
    assert file.reads == [0]


def test_batch_above_the_size_of_a_chunk_is_charged_as_it_is() -> None:
    story = PushStory(**SMALL)
    story.open(session(), HeldRange(0, 1, batch(0, size=5000)))
    assert story.used_bytes == 5000
    story.answer()
    assert story.used_bytes == 0


@pytest.mark.spec("push-replication 40")
def test_release_of_records_that_are_not_held_is_counted_and_changes_nothing() -> None:
    budget = PushMemoryBudget(1000, 600)
    ref = RecordsRef(budget, bytes(100))
    ref.retain(0)
    ref.release(0)
    ref.release(0)
    assert (budget.used_bytes, budget.pusher_bytes(0), budget.faulty_releases) == (0, 0, 1)


def test_release_of_records_that_are_not_held_raises_in_tests() -> None:
    ref = RecordsRef(PushMemoryBudget(1000, 600, is_strict=True), bytes(100))
    with pytest.raises(AssertionError, match="not held"):
        ref.release(0)


def test_budget_counts_the_times_that_it_passes_the_soft_mark() -> None:
    budget = PushMemoryBudget(1000, 1000)
    ref = RecordsRef(budget, bytes(800))
    for _ in range(2):
        ref.retain(0)
        assert budget.is_above_soft_mark
        ref.release(0)
    assert (budget.soft_limit_hits, budget.peak_bytes) == (2, 800)
