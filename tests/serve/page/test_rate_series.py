"""Throughput and lag of the last day, in memory of a fixed size."""

import math
import sys

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.manual_clock import ManualClock
from tierd.serve import RateSample, RateSeries
from tierd.serve.page.rate_series import FIELDS, MEMORY_BYTES, SLOT_S, SLOTS


def known(series: RateSeries, name: str) -> list[float]:
    return [value for value in series.values(name) if not math.isnan(value)]


def test_series_without_a_sample_has_no_value() -> None:
    assert RateSeries().values("lag_bytes") == []


def test_total_becomes_a_rate_since_the_sample_before_and_a_state_stays_what_it_is() -> None:
    clock, series = ManualClock(), RateSeries()
    for copied, lag in ((100, 7), (700, 8), (700, 9)):
        series.add(clock.monotonic_s(), RateSample(copied_bytes=copied, lag_bytes=lag))
        clock.advance(60)
    assert known(series, "copied_bytes") == [10, 0]
    assert known(series, "lag_bytes") == [7, 8, 9]


def test_total_that_falls_counts_as_one_that_began_anew() -> None:
    series = RateSeries()
    series.add(0, RateSample(copied_bytes=1000))
    series.add(60, RateSample(copied_bytes=120))
    assert known(series, "copied_bytes") == [2]


def test_minutes_without_a_sample_are_missing_and_the_rate_is_of_the_whole_time() -> None:
    series = RateSeries()
    series.add(0, RateSample(copied_bytes=0, lag_bytes=1))
    series.add(240, RateSample(copied_bytes=2400, lag_bytes=2))
    assert [math.isnan(each) for each in series.values("lag_bytes")[-5:]] == [False, True, True, True, False]
    assert known(series, "copied_bytes") == [10]


def test_value_of_the_day_before_is_gone() -> None:
    clock, series = ManualClock(), RateSeries()
    for minute in range(SLOTS + 10):
        series.add(clock.monotonic_s(), RateSample(lag_bytes=minute))
        clock.advance(SLOT_S)
    assert series.values("lag_bytes") == list(range(10, SLOTS + 10))


def test_pause_of_days_leaves_only_the_sample_after_it() -> None:
    series = RateSeries()
    for minute in range(SLOTS):
        series.add(minute * 60.0, RateSample(lag_bytes=minute))
    series.add(10 * 86_400.0, RateSample(lag_bytes=5))
    assert known(series, "lag_bytes") == [5]


def test_memory_is_the_same_after_weeks_and_as_large_as_stated() -> None:
    series = RateSeries()
    before = series.memory_bytes
    for minute in range(0, 21 * SLOTS, 7):
        series.add(minute * 60.0, RateSample(copied_bytes=minute))
    assert series.memory_bytes == before == MEMORY_BYTES == 80_640
    assert sum(sys.getsizeof(ring) for ring in series._values.values()) < MEMORY_BYTES + 200 * len(FIELDS)


@given(st.lists(st.tuples(st.floats(0.5, 5000), st.integers(0, 10**12)), min_size=1, max_size=60))
def test_last_value_is_that_of_the_last_sample_whatever_the_pauses(steps: list[tuple[float, int]]) -> None:
    series, now_s = RateSeries(), 0.0
    for passed_s, lag in steps:
        now_s += passed_s
        series.add(now_s, RateSample(lag_bytes=lag))
    values = series.values("lag_bytes")
    assert len(values) == SLOTS
    assert values[-1] == steps[-1][1]
    assert len(known(series, "lag_bytes")) <= len(steps)
