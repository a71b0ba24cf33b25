"""End of a micro-batch: within its limits, and at least one offset of each partition further."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.source.test_splits import ORDERS, span, spans
from tierd.model import TopicPartition
from tierd.pipeline.source.admission import Admission, admitted
from tierd.pipeline.source.splits import QuerySpan

USERS = TopicPartition("users", 0)


def size_below(each: QuerySpan, end_offset: int) -> float:
    """Return the bytes of the part of a span below ``end_offset``."""
    cut = (part.cut(part.start_offset, end_offset) for part in each.parts if part.start_offset < end_offset)
    return sum(part.size_bytes for part in cut)


def starts_of(waiting: Mapping[TopicPartition, QuerySpan]) -> dict[TopicPartition, int]:
    return {name: each.start_offset for name, each in waiting.items()}


def test_large_records_before_many_small_ones_are_spread_over_micro_batches() -> None:
    """A thousand records of a megabyte precede ten million of a hundred bytes: shares of offsets differ from bytes."""
    waiting = {ORDERS: span((0, 1_000, 1_000_000_000), (1_000, 10_001_000, 1_000_000_000))}
    assert admitted(waiting, {ORDERS: 0}, Admission(max_bytes=64_000_000)) == {ORDERS: 64}


def test_byte_limit_is_shared_by_size_and_offset_limit_by_offsets() -> None:
    waiting = {ORDERS: span((0, 100, 9_000)), USERS: span((0, 900, 1_000))}
    starts = starts_of(waiting)
    assert admitted(waiting, starts, Admission(max_bytes=1_000)) == {ORDERS: 10, USERS: 90}
    assert admitted(waiting, starts, Admission(max_offsets=100)) == {ORDERS: 10, USERS: 90}
    assert admitted(waiting, starts, Admission(max_offsets=100, max_bytes=100)) == {ORDERS: 1, USERS: 9}
    assert admitted(waiting, starts, Admission(max_offsets=1_000, max_bytes=10_000)) == {ORDERS: 100, USERS: 900}


@given(
    st.lists(spans(), min_size=1, max_size=3),
    st.none() | st.integers(min_value=1, max_value=200),
    st.none() | st.integers(min_value=1, max_value=3000),
)
def test_micro_batch_stays_within_its_limits_except_for_one_offset_of_each_partition(
    asked: list[QuerySpan], max_offsets: int | None, max_bytes: int | None
) -> None:
    waiting = {TopicPartition("t", number): each for number, each in enumerate(asked)}
    starts, limits = starts_of(waiting), Admission(max_offsets, max_bytes)
    ends = admitted(waiting, starts, limits)
    moved = {name: ends[name] - starts[name] for name in waiting}
    assert all(1 <= moved[name] <= each.end_offset - each.start_offset for name, each in waiting.items())
    if max_offsets is not None:
        assert sum(count for count in moved.values() if count > 1) <= max_offsets
    if max_bytes is not None:
        size = sum(size_below(each, ends[name]) for name, each in waiting.items() if moved[name] > 1)
        assert size <= max_bytes + len(waiting)  # sizes are whole numbers
    all_offsets = sum(each.end_offset - each.start_offset for each in asked)
    all_bytes = sum(each.size_bytes for each in asked)
    if (max_offsets is None or max_offsets >= all_offsets) and (max_bytes is None or max_bytes >= all_bytes):
        assert ends == {name: each.end_offset for name, each in waiting.items()}
