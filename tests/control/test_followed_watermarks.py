from collections.abc import Callable
from uuid import UUID

from tierd.control.followed_watermarks import RETRY_S, UNUSED_S, FollowedWatermarks
from tierd.control.watermark_session import Watermark, WatermarkAnswer
from tierd.model import PartitionKey

ORDERS: PartitionKey = (UUID(int=7), 0)
PAYMENTS: PartitionKey = (UUID(int=8), 0)


def answer(key: PartitionKey, high_watermark: int) -> WatermarkAnswer:
    return WatermarkAnswer("", 1, {key: Watermark(high_watermark, high_watermark, 0)}, {})


def refusal(key: PartitionKey, problem: str) -> WatermarkAnswer:
    return WatermarkAnswer("", 1, {}, {key: problem})


def take(followed: FollowedWatermarks, told: WatermarkAnswer, *, sent_s: float, now_s: float) -> int:
    """Take an answer and call the listeners; return how many there were."""
    listeners = list(followed.take(told, sent_s=sent_s, now_s=now_s))
    for listener in listeners:
        listener()
    return len(listeners)


def high_watermark(followed: FollowedWatermarks) -> int | None:
    known = followed.known(ORDERS)
    return None if known is None else known.high_watermark


def in_use(*, from_offset: int = 0) -> FollowedWatermarks:
    followed = FollowedWatermarks()
    followed.use(ORDERS, from_offset=from_offset, now_s=0)
    return followed


class TestOffsets:
    def test_partition_is_waited_for_at_its_high_watermark(self) -> None:
        followed = in_use(from_offset=5)
        assert followed.offsets(0) == {ORDERS: 5}
        take(followed, answer(ORDERS, 9), sent_s=0, now_s=1)
        assert followed.offsets(1) == {ORDERS: 9}

    def test_first_offset_to_ask_at_follows_the_caller_until_the_first_answer(self) -> None:
        followed = in_use(from_offset=5)
        followed.use(ORDERS, from_offset=7, now_s=0)
        assert followed.offsets(0) == {ORDERS: 7}
        take(followed, answer(ORDERS, 9), sent_s=0, now_s=1)
        followed.use(ORDERS, from_offset=8, now_s=1)
        assert followed.offsets(1) == {ORDERS: 9}

    def test_unused_partition_is_forgotten_and_one_with_a_listener_is_not(self) -> None:
        followed = in_use()
        followed.use(PAYMENTS, from_offset=0, now_s=0)
        leave = followed.listen(ORDERS, lambda: None)
        assert set(followed.offsets(UNUSED_S - 1)) == {ORDERS, PAYMENTS}
        assert set(followed.offsets(UNUSED_S)) == {ORDERS}
        leave()
        assert followed.offsets(UNUSED_S) == {}

    def test_refused_partition_is_asked_for_again_after_a_while(self) -> None:
        followed = in_use()
        take(followed, refusal(ORDERS, "unknown_topic_id"), sent_s=0, now_s=1)
        assert followed.offsets(1) == {}
        assert followed.problems() == {ORDERS: "unknown_topic_id"}
        assert followed.offsets(1 + RETRY_S) == {ORDERS: 0}
        take(followed, answer(ORDERS, 3), sent_s=2, now_s=3)
        assert followed.problems() == {}

    def test_offset_out_of_range_forgets_what_was_known(self) -> None:
        followed = in_use()
        take(followed, answer(ORDERS, 9), sent_s=0, now_s=1)
        take(followed, refusal(ORDERS, "offset_out_of_range"), sent_s=1, now_s=2)
        assert followed.known(ORDERS) is None
        followed.use(ORDERS, from_offset=4, now_s=3)
        assert followed.offsets(4) == {ORDERS: 4}


class TestQuestions:
    def test_wanted_partition_is_in_the_next_question_once(self) -> None:
        followed = in_use(from_offset=5)
        followed.want(ORDERS)
        followed.want(ORDERS)
        assert followed.question() == {ORDERS: 5}
        assert followed.question() == {}

    def test_partition_with_a_listener_joins_until_it_is_covered_or_refused(self) -> None:
        followed = in_use()
        followed.use(PAYMENTS, from_offset=0, now_s=0)
        leave = followed.listen(ORDERS, lambda: None)
        assert followed.joining(()) == [ORDERS]
        assert followed.joining({ORDERS}) == []
        take(followed, refusal(ORDERS, "unknown_topic_id"), sent_s=0, now_s=1)
        assert followed.joining(()) == []
        take(followed, answer(ORDERS, 3), sent_s=2, now_s=3)
        assert followed.joining(()) == [ORDERS]
        leave()
        assert followed.joining(()) == []

    def test_question_has_a_bounded_number_of_partitions(self) -> None:
        followed = FollowedWatermarks()
        for number in range(1500):
            followed.use((UUID(int=7), number), from_offset=0, now_s=0)
            followed.want((UUID(int=7), number))
        assert [len(followed.question()) for _ in range(3)] == [1000, 500, 0]


class TestAnswers:
    def test_listeners_are_called_for_what_moved_until_they_leave(self) -> None:
        followed, calls = in_use(), list[int]()
        listen: Callable[[int], Callable[[], None]] = lambda n: followed.listen(ORDERS, lambda: calls.append(n))  # noqa: E731
        leave, _ = listen(1), listen(2)
        assert take(followed, answer(ORDERS, 9), sent_s=0, now_s=1) == 2
        assert take(followed, answer(ORDERS, 9), sent_s=1, now_s=2) == 0
        leave()
        take(followed, answer(ORDERS, 10), sent_s=2, now_s=3)
        assert calls == [1, 2, 2]

    def test_last_stable_offset_that_moves_alone_is_a_change(self) -> None:
        followed = in_use()
        take(followed, answer(ORDERS, 9), sent_s=0, now_s=1)
        followed.listen(ORDERS, lambda: None)
        stable = WatermarkAnswer("", 1, {ORDERS: Watermark(9, 5, 0)}, {})
        assert take(followed, stable, sent_s=1, now_s=2) == 1

    def test_lower_answer_to_an_earlier_request_changes_nothing_and_is_a_doubt(self) -> None:
        followed = in_use()
        take(followed, answer(ORDERS, 110), sent_s=0, now_s=2)
        assert followed.is_current(ORDERS, {ORDERS})
        take(followed, answer(ORDERS, 100), sent_s=1, now_s=3)
        assert high_watermark(followed) == 110
        assert not followed.is_current(ORDERS, {ORDERS})

    def test_lower_answer_to_a_later_request_counts(self) -> None:
        followed = in_use()
        take(followed, answer(ORDERS, 110), sent_s=0, now_s=2)
        take(followed, answer(ORDERS, 100), sent_s=1, now_s=3)
        take(followed, answer(ORDERS, 100), sent_s=3, now_s=4)
        assert high_watermark(followed) == 100
        assert followed.is_current(ORDERS, {ORDERS})

    def test_partition_that_no_request_waits_for_is_not_current(self) -> None:
        followed = in_use()
        assert not followed.is_current(ORDERS, {ORDERS})
        take(followed, answer(ORDERS, 9), sent_s=0, now_s=1)
        assert not followed.is_current(ORDERS, ())

    def test_answer_about_a_partition_that_is_not_in_use_is_ignored(self) -> None:
        followed = FollowedWatermarks()
        assert take(followed, answer(ORDERS, 9), sent_s=0, now_s=1) == 0
        assert take(followed, refusal(PAYMENTS, "unknown_topic_id"), sent_s=0, now_s=1) == 0
        assert len(followed) == 0
