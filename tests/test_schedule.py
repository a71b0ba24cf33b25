"""Begins of runs, and pauses."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.schedule import Schedule

BERLIN = "Europe/Berlin"
_HOUR_MS = 3_600_000


def ms(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def never() -> float:
    return 0.0


def test_run_begins_at_the_next_scheduled_time_in_its_time_zone() -> None:
    schedule = Schedule("0 3 * * *", time_zone=BERLIN)
    assert schedule.next_begin_ms(ms("2026-07-01T02:59", BERLIN), random=never) == ms("2026-07-01T03:00", BERLIN)
    assert schedule.next_begin_ms(ms("2026-07-01T03:00", BERLIN), random=never) == ms("2026-07-02T03:00", BERLIN)


def test_scheduled_time_skipped_by_a_clock_change_is_the_next_existing_time() -> None:
    schedule = Schedule("30 2 * * *", time_zone=BERLIN)
    assert schedule.next_begin_ms(ms("2026-03-28T12:00"), random=never) == ms("2026-03-29T01:00")


def test_jitter_begins_a_run_at_or_after_its_scheduled_time() -> None:
    schedule = Schedule("0 3 * * *", jitter_s=600)
    after = ms("2026-07-01T00:00")
    assert schedule.next_begin_ms(after, random=lambda: 0.5) == ms("2026-07-01T03:05")
    assert schedule.next_begin_ms(after, random=never) == ms("2026-07-01T03:00")


def test_run_scheduled_within_a_pause_begins_at_the_end_of_the_pause() -> None:
    schedule = Schedule("0 9 * * *", pause_windows=["08:00-18:00", "17:30-19:15"])
    assert schedule.next_begin_ms(ms("2026-07-01T00:00"), random=never) == ms("2026-07-01T19:15")


def test_pause_may_span_midnight() -> None:
    schedule = Schedule("@hourly", time_zone=BERLIN, pause_windows=["22:00-06:00"])
    for inside in ("2026-07-01T22:00", "2026-07-01T23:59", "2026-07-02T00:00", "2026-07-02T05:59"):
        assert schedule.paused_until_ms(ms(inside, BERLIN)) == ms("2026-07-02T06:00", BERLIN)
    for outside in ("2026-07-01T21:59", "2026-07-02T06:00"):
        assert schedule.paused_until_ms(ms(outside, BERLIN)) is None


def test_next_pause_is_the_first_one_that_begins_later() -> None:
    schedule = Schedule("@daily", pause_windows=["08:00-18:00"])
    assert schedule.next_pause_ms(ms("2026-07-01T07:00")) == ms("2026-07-01T08:00")
    assert schedule.next_pause_ms(ms("2026-07-01T08:00")) == ms("2026-07-02T08:00")
    assert Schedule("@daily").next_pause_ms(0) is None


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("0 3 * *", "five fields"),
        ("0 0 0 * * *", "five fields"),
        ("61 * * * *", "no cron expression"),
        ("0 0 31 2 *", "no cron expression"),
        ("@sometimes", "no cron expression"),
    ],
)
def test_malformed_schedule_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Schedule(expression)


@pytest.mark.parametrize("window", ["8-18", "08:00-25:00", "08:00", "08:00-08:00"])
def test_malformed_pause_is_refused(window: str) -> None:
    with pytest.raises(ValueError, match="08:00"):
        Schedule("@daily", pause_windows=[window])


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="'Berlin' is no time zone"):
        Schedule("@daily", time_zone="Berlin")


@given(st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)), st.floats(0, 1, exclude_max=True))
def test_a_run_begins_later_than_now_within_a_day_and_outside_of_pauses(moment: datetime, random: float) -> None:
    schedule = Schedule("15 */4 * * *", time_zone=BERLIN, pause_windows=["07:30-12:00"], jitter_s=900)
    now_ms = round(moment.replace(tzinfo=UTC).timestamp() * 1000)
    begin_ms = schedule.next_begin_ms(now_ms, random=lambda: random)
    assert now_ms < begin_ms <= now_ms + 10 * _HOUR_MS
    assert schedule.paused_until_ms(begin_ms) is None
