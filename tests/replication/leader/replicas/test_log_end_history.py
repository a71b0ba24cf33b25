"""Log ends and sizes by time: exact for new appends, never too low for old ones, in bounded memory."""

from bisect import bisect_right
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from tierd.replication.leader.replicas.log_end_history import MARKS, LogEndHistory

APPENDS = st.lists(
    st.tuples(st.integers(1, 10), st.integers(100, 1000), st.floats(0, 2)), min_size=1, max_size=4 * MARKS
)
"""Offsets, bytes, and the seconds since the append before."""


def test_end_at_a_time_is_the_end_of_the_last_append_before_it() -> None:
    history = LogEndHistory(100, 0.0)
    history.note(110, 500, 1.0)
    history.note(120, 500, 2.0)

    assert [history.end_at(at_s) for at_s in (0.5, 1.0, 1.5, 2.0, 9.0)] == [100, 110, 110, 120, 120]


def test_end_at_a_time_before_the_history_is_the_first_end() -> None:
    assert LogEndHistory(100, 5.0).end_at(1.0) == 100


def test_bytes_after_the_end_of_an_append_are_those_of_the_later_appends() -> None:
    history = LogEndHistory(100, 0.0)
    history.note(110, 500, 1.0)
    history.note(120, 700, 2.0)

    assert [history.bytes_after(offset) for offset in (100, 110, 120)] == [1200, 700, 0]


def test_bytes_after_an_offset_inside_an_append_count_the_whole_append() -> None:
    history = LogEndHistory(100, 0.0)
    history.note(110, 500, 1.0)
    assert history.bytes_after(105) == 500


def test_bytes_before_the_history_are_estimated_from_the_records_that_were_seen() -> None:
    history = LogEndHistory(100, 0.0)
    history.note(110, 500, 1.0)
    assert history.bytes_after(80) == 500 + 20 * 50


def test_bytes_before_the_history_are_unknown_without_any_record() -> None:
    assert LogEndHistory(100, 0.0).bytes_after(0) == 0


@given(APPENDS, st.floats(0, 500))
def test_end_at_any_time_is_never_too_low(appends: list[tuple[int, int, float]], at_s: float) -> None:
    history = LogEndHistory(0, 0.0)
    times, ends = [0.0], [0]
    for offsets, size, pause_s in appends:
        times.append(times[-1] + pause_s)
        ends.append(ends[-1] + offsets)
        history.note(ends[-1], size, times[-1])

    true_end = ends[bisect_right(times, at_s) - 1]

    assert true_end <= history.end_at(at_s) <= ends[-1]
    assert history.log_end_offset == ends[-1]


@given(APPENDS, st.data())
def test_bytes_after_any_offset_are_never_too_low(appends: list[tuple[int, int, float]], data: st.DataObject) -> None:
    history = LogEndHistory(0, 0.0)
    ends = list(accumulate((offsets for offsets, _, _ in appends), initial=0))
    at_s = 0.0
    for (_, size, pause_s), end in zip(appends, ends[1:], strict=True):
        at_s += pause_s
        history.note(end, size, at_s)
    index = data.draw(st.integers(0, len(appends)))

    true_bytes = sum(size for _, size, _ in appends[index:])

    assert true_bytes <= history.bytes_after(ends[index]) <= sum(size for _, size, _ in appends)


@given(APPENDS)
def test_memory_stays_bounded(appends: list[tuple[int, int, float]]) -> None:
    history = LogEndHistory(0, 0.0)
    end, at_s = 0, 0.0
    for offsets, size, pause_s in appends * 3:
        end, at_s = end + offsets, at_s + pause_s + 0.01
        history.note(end, size, at_s)
    assert len(history._marks) <= MARKS
