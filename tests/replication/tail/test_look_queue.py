"""LookQueue: when a partition is looked at next."""

import pytest

from tierd.replication.tail.look_queue import LookQueue, LookResult


@pytest.fixture
def queue() -> LookQueue[str]:
    return LookQueue(interval_s=0.01, check_interval_s=60.0, random=lambda: 0.5)


def look(queue: LookQueue[str], result: LookResult, *, now_s: float, is_watched: bool = True) -> None:
    for key in queue.take(100):
        queue.done(key, result, now_s=now_s, is_watched=is_watched)


def due_after(queue: LookQueue[str], now_s: float) -> float:
    """Return when the only partition is looked at next, without a mark."""
    for _ in range(10):
        at_s = queue.next_due_s
        assert at_s is not None
        queue.wake(at_s)
        if queue.waiting:
            return at_s - now_s
    raise AssertionError("nothing is due")


def test_new_partition_waits(queue: LookQueue[str]) -> None:
    queue.add("a")
    assert queue.take(10) == ["a"]
    assert queue.take(10) == []


def test_watched_partition_rests_until_it_is_marked_or_checked(queue: LookQueue[str]) -> None:
    queue.add("a")
    look(queue, LookResult.IDLE, now_s=0.0)
    queue.wake(59.0)
    assert queue.waiting == 0
    queue.mark("a")
    assert queue.waiting == 1
    look(queue, LookResult.GROWN, now_s=59.0)
    assert due_after(queue, 59.0) == pytest.approx(60.0)


def test_mark_during_a_look_leads_to_one_more_look(queue: LookQueue[str]) -> None:
    queue.add("a")
    (key,) = queue.take(1)
    queue.mark("a")
    assert queue.take(1) == []
    queue.done(key, LookResult.IDLE, now_s=0.0, is_watched=True)
    assert queue.take(1) == ["a"]


def test_look_that_ended_early_goes_on_at_once(queue: LookQueue[str]) -> None:
    queue.add("a")
    look(queue, LookResult.MORE, now_s=0.0)
    assert queue.take(1) == ["a"]


def test_partitions_are_taken_in_turn(queue: LookQueue[str]) -> None:
    for key in "abc":
        queue.add(key)
    assert queue.take(2) == ["a", "b"]
    queue.done("a", LookResult.MORE, now_s=0.0, is_watched=True)
    assert queue.take(2) == ["c", "a"]


def test_unwatched_partition_is_polled_less_often_while_it_is_idle(queue: LookQueue[str]) -> None:
    queue.add("a")
    look(queue, LookResult.GROWN, now_s=0.0, is_watched=False)
    delays, now_s = [], 0.0
    for _ in range(9):
        delays.append(due_after(queue, now_s))
        now_s += delays[-1]
        look(queue, LookResult.IDLE, now_s=now_s, is_watched=False)
    assert delays[:3] == pytest.approx([0.01, 0.02, 0.04])
    assert delays[-1] == pytest.approx(1.0)
    queue.mark("a")
    look(queue, LookResult.GROWN, now_s=now_s, is_watched=False)
    assert due_after(queue, now_s) == pytest.approx(0.01)


def test_many_unwatched_partitions_share_a_bounded_rate(queue: LookQueue[str]) -> None:
    for number in range(3_000):
        queue.add(f"{number}")
    now_s = 0.0
    for _ in range(10):
        while keys := queue.take(1000):
            for key in keys:
                queue.done(key, LookResult.IDLE, now_s=now_s, is_watched=False)
        assert queue.next_due_s is not None
        delay_s = queue.next_due_s - now_s
        now_s = queue.next_due_s + 1e-6
        queue.wake(now_s)
    assert delay_s == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(
    ("result", "first_s", "longest_s"), [(LookResult.FAILED, 0.1, 30), (LookResult.UNSETTLED, 0.02, 1)]
)
def test_failures_in_a_row_are_repeated_later_and_later(
    queue: LookQueue[str], result: LookResult, first_s: float, longest_s: float
) -> None:
    queue.add("a")
    look(queue, result, now_s=0.0)
    delays, now_s = [], 0.0
    for _ in range(12):
        delays.append(due_after(queue, now_s))
        now_s += delays[-1]
        look(queue, result, now_s=now_s)
    assert delays[:2] == pytest.approx([first_s, 2 * first_s])
    assert delays[-1] == pytest.approx(longest_s)


def test_busy_partition_has_few_entries(queue: LookQueue[str]) -> None:
    queue.add("a")
    for turn in range(1000):
        look(queue, LookResult.GROWN, now_s=turn * 0.01)
        queue.mark("a")
    assert len(queue._heap) < 5  # the bound is on memory, which no other call shows


def test_removed_partition_is_not_taken(queue: LookQueue[str]) -> None:
    queue.add("a")
    queue.add("b")
    (key,) = queue.take(1)
    queue.remove("a")
    queue.remove("b")
    queue.done(key, LookResult.MORE, now_s=0.0, is_watched=True)
    assert queue.take(10) == []
    assert len(queue) == 0
