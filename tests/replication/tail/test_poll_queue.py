"""PollQueue: when a partition is polled next."""

import pytest

from tierd.replication.tail.poll_queue import PollQueue, PollResult


@pytest.fixture
def queue() -> PollQueue[str]:
    return PollQueue(interval_s=0.01, check_interval_s=60.0, random=lambda: 0.5)


def poll(queue: PollQueue[str], result: PollResult, *, now_s: float, is_watched: bool = True) -> None:
    for key in queue.take(100):
        queue.done(key, result, now_s=now_s, is_watched=is_watched)


def due_after(queue: PollQueue[str], now_s: float) -> float:
    """Return when the only partition is polled next, without a mark."""
    for _ in range(10):
        at_s = queue.next_due_s
        assert at_s is not None
        queue.wake(at_s)
        if queue.waiting:
            return at_s - now_s
    raise AssertionError("nothing is due")


def test_new_partition_waits(queue: PollQueue[str]) -> None:
    queue.add("a")
    assert queue.take(10) == ["a"]
    assert queue.take(10) == []


def test_watched_partition_rests_until_it_is_marked_or_checked(queue: PollQueue[str]) -> None:
    queue.add("a")
    poll(queue, PollResult.IDLE, now_s=0.0)
    queue.wake(59.0)
    assert queue.waiting == 0
    queue.mark("a")
    assert queue.waiting == 1
    poll(queue, PollResult.GROWN, now_s=59.0)
    assert due_after(queue, 59.0) == pytest.approx(60.0)


def test_mark_during_a_poll_leads_to_one_more_poll(queue: PollQueue[str]) -> None:
    queue.add("a")
    (key,) = queue.take(1)
    queue.mark("a")
    assert queue.take(1) == []
    queue.done(key, PollResult.IDLE, now_s=0.0, is_watched=True)
    assert queue.take(1) == ["a"]


def test_poll_that_ended_early_goes_on_at_once(queue: PollQueue[str]) -> None:
    queue.add("a")
    poll(queue, PollResult.MORE, now_s=0.0)
    assert queue.take(1) == ["a"]


def test_partitions_are_taken_in_turn(queue: PollQueue[str]) -> None:
    for key in "abc":
        queue.add(key)
    assert queue.take(2) == ["a", "b"]
    queue.done("a", PollResult.MORE, now_s=0.0, is_watched=True)
    assert queue.take(2) == ["c", "a"]


def test_unwatched_partition_is_polled_less_often_while_it_is_idle(queue: PollQueue[str]) -> None:
    queue.add("a")
    poll(queue, PollResult.GROWN, now_s=0.0, is_watched=False)
    delays, now_s = [], 0.0
    for _ in range(9):
        delays.append(due_after(queue, now_s))
        now_s += delays[-1]
        poll(queue, PollResult.IDLE, now_s=now_s, is_watched=False)
    assert delays[:3] == pytest.approx([0.01, 0.02, 0.04])
    assert delays[-1] == pytest.approx(1.0)
    queue.mark("a")
    poll(queue, PollResult.GROWN, now_s=now_s, is_watched=False)
    assert due_after(queue, now_s) == pytest.approx(0.01)


def test_many_unwatched_partitions_share_a_bounded_rate(queue: PollQueue[str]) -> None:
    for number in range(3_000):
        queue.add(f"{number}")
    now_s = 0.0
    for _ in range(10):
        while keys := queue.take(1000):
            for key in keys:
                queue.done(key, PollResult.IDLE, now_s=now_s, is_watched=False)
        assert queue.next_due_s is not None
        delay_s = queue.next_due_s - now_s
        now_s = queue.next_due_s + 1e-6
        queue.wake(now_s)
    assert delay_s == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(
    ("result", "first_s", "longest_s"), [(PollResult.FAILED, 0.1, 30), (PollResult.UNSETTLED, 0.02, 1)]
)
def test_failures_in_a_row_are_repeated_later_and_later(
    queue: PollQueue[str], result: PollResult, first_s: float, longest_s: float
) -> None:
    queue.add("a")
    poll(queue, result, now_s=0.0)
    delays, now_s = [], 0.0
    for _ in range(12):
        delays.append(due_after(queue, now_s))
        now_s += delays[-1]
        poll(queue, result, now_s=now_s)
    assert delays[:2] == pytest.approx([first_s, 2 * first_s])
    assert delays[-1] == pytest.approx(longest_s)


def test_busy_partition_has_few_entries(queue: PollQueue[str]) -> None:
    queue.add("a")
    for turn in range(1000):
        poll(queue, PollResult.GROWN, now_s=turn * 0.01)
        queue.mark("a")
    assert len(queue._heap) < 5  # the bound is on memory, which no other call shows


def test_removed_partition_is_not_taken(queue: PollQueue[str]) -> None:
    queue.add("a")
    queue.add("b")
    (key,) = queue.take(1)
    queue.remove("a")
    queue.remove("b")
    queue.done(key, PollResult.MORE, now_s=0.0, is_watched=True)
    assert queue.take(10) == []
    assert len(queue) == 0
