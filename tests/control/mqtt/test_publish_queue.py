"""PublishQueue: rates, bounds, and what is dropped first."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.control.mqtt.control_messages import MAX_PAYLOAD_BYTES
from tierd.control.mqtt.publish_queue import OutgoingMessage, PublishQueue


def _drained(queue: PublishQueue, *, from_s: float = 0.0, until_s: float = 1e9) -> list[tuple[float, str]]:
    """Send all that the queue gives until it is empty; return moment and topic of each message."""
    sent, now_s = [], from_s
    while now_s < until_s and (found := queue.next(now_s)) is not None:
        if isinstance(found, OutgoingMessage):
            sent.append((now_s, found.topic))
        else:
            assert found > 0
            now_s += found + 1e-9
    return sent


@given(rate=st.integers(2, 400), count=st.integers(0, 1500))
def test_no_second_has_more_messages_than_the_rate(rate: int, count: int) -> None:
    queue = PublishQueue(rate_per_s=rate)
    for number in range(count):
        queue.retain(f"t/{number}", b"x")
    sent = [moment for moment, _ in _drained(queue)]
    assert len(sent) == count
    assert all(later - earlier >= 1 for earlier, later in zip(sent, sent[rate:], strict=False))


@given(changes=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 0.4)), max_size=60))
def test_partition_has_at_most_one_event_a_second_and_the_last_one_is_sent(
    changes: list[tuple[int, float]],
) -> None:
    queue, now_s, sent = PublishQueue(), 0.0, []
    last: dict[str, bytes] = {}
    for number, (partition, pause_s) in enumerate(changes):
        topic = f"part/x/{partition}/push/2"
        last[topic] = payload = str(number).encode()
        assert queue.event(topic, payload)
        while isinstance(found := queue.next(now_s), OutgoingMessage):
            sent.append((now_s, found))
        now_s += pause_s
    while (found := queue.next(now_s)) is not None:
        if isinstance(found, OutgoingMessage):
            sent.append((now_s, found))
        else:
            now_s += found + 1e-9
    assert {message.topic: message.payload for _, message in sent} == last
    for topic in last:
        moments = [moment for moment, message in sent if message.topic == topic]
        assert all(later - earlier >= 1 - 1e-6 for earlier, later in pairwise(moments))


def test_two_replicas_of_a_partition_share_the_rate_of_its_events() -> None:
    queue = PublishQueue()
    queue.event("part/x/0/push/2", b"a")
    queue.event("part/x/0/push/3", b"b")
    (first, _), (second, _) = _drained(queue)
    assert second - first >= 1


def test_retained_state_that_changes_often_is_sent_once_with_its_last_value() -> None:
    queue = PublishQueue()
    for number in range(100):
        queue.retain("t", str(number).encode())
    found = queue.next(0.0)
    assert isinstance(found, OutgoingMessage)
    assert (found.payload, found.retain, found.expiry_s) == (b"99", True, None)
    assert queue.next(0.0) is None
    assert queue.counts().superseded == 99


@pytest.mark.spec("push-replication 99")
def test_payload_above_4_kib_is_refused_and_counted() -> None:
    queue, large = PublishQueue(), b"x" * (MAX_PAYLOAD_BYTES + 1)
    assert not queue.retain("t", large)
    assert not queue.event("t", large)
    assert not queue.direct(OutgoingMessage(topic="t", payload=large))
    assert queue.next(0.0) is None
    assert queue.counts().too_large == 3
    assert queue.retain("t", b"x" * MAX_PAYLOAD_BYTES)


def test_flood_stays_within_the_bounds_and_is_counted() -> None:
    queue = PublishQueue(max_retained=3, max_events=3, max_direct=3)
    for number in range(10):
        queue.retain(f"r/{number}", b"")
        queue.event(f"e/{number}", b"")
        queue.direct(OutgoingMessage(topic="d", payload=b""))
    counts = queue.counts()
    assert (counts.waiting, counts.retained, counts.queue_full) == (9, 3, 21)
    assert queue.retain("r/0", b"new")


def test_requests_and_replies_go_before_announcements() -> None:
    queue = PublishQueue()
    queue.retain("state", b"")
    queue.direct(OutgoingMessage(topic="reply", payload=b""))
    assert [topic for _, topic in _drained(queue)] == ["reply", "state"]


def test_all_state_is_sent_again_after_a_reconnect_without_what_was_withdrawn() -> None:
    queue = PublishQueue()
    for topic in ("a", "b", "c"):
        queue.retain(topic, b"")
    _drained(queue)
    queue.withdraw("b")
    queue.repeat_all()
    queue.retain("c", b"new", is_urgent=True)
    assert [topic for _, topic in _drained(queue, from_s=10.0)] == ["c", "a"]


def test_clock_that_stands_still_gives_no_more_messages() -> None:
    queue = PublishQueue(rate_per_s=10)
    for number in range(100):
        queue.retain(f"t/{number}", b"")
    sent = 0
    while isinstance(queue.next(5.0), OutgoingMessage):
        sent += 1
    assert sent == 5
