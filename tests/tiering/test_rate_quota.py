"""RateQuota: the vectors of KIP-956, on a clock that the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.tiering.capacity import DEFAULT_WINDOW_S, DEFAULT_WINDOWS, UNLIMITED, RateQuota


@pytest.mark.spec("remote-tiering 158")
@pytest.mark.parametrize(("passed_s", "throttle_ms"), [(1, 9000), (9, 1000), (10, 0)])
def test_recorded_bytes_throttle_until_the_rate_is_at_the_limit(passed_s: float, throttle_ms: int) -> None:
    quota = RateQuota(50)
    quota.record(500, 100.0)
    assert quota.throttle_ms(100.0 + passed_s) == throttle_ms


@pytest.mark.spec("remote-tiering 159")
def test_rate_at_the_limit_is_not_throttled_and_one_byte_more_is() -> None:
    quota = RateQuota(50)
    quota.record(50, 0.0)
    assert quota.throttle_ms(0.9) == 0
    quota.record(1, 0.9)
    assert quota.throttle_ms(0.9) == 20


@pytest.mark.spec("remote-tiering 160")
def test_new_limit_applies_to_bytes_recorded_before() -> None:
    quota = RateQuota(50)
    quota.record(500, 0.0)
    quota.set_limit(500)
    assert quota.throttle_ms(1.0) == 0
    quota.set_limit(25)
    assert quota.throttle_ms(1.0) == 19_000


@pytest.mark.spec("remote-tiering 161")
def test_default_quota_is_unlimited_over_eleven_windows_of_a_second() -> None:
    quota = RateQuota()
    assert (quota.limit, quota.windows, quota.window_s) == (2**63 - 1, 11, 1.0)
    assert (UNLIMITED, DEFAULT_WINDOWS, DEFAULT_WINDOW_S) == (2**63 - 1, 11, 1.0)
    custom = RateQuota(7, windows=3, window_s=2.5)
    assert (custom.limit, custom.windows, custom.window_s) == (7, 3, 2.5)


def test_bytes_older_than_the_windows_are_forgotten() -> None:
    quota = RateQuota(1)
    quota.record(1_000_000, 0.0)
    assert quota.throttle_ms(10.9) > 0
    assert quota.throttle_ms(11.0) == 0
    assert quota.rate(11.0) == 0


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_that_admits_no_byte_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        RateQuota(limit)


def test_quota_of_zero_windows_is_refused() -> None:
    with pytest.raises(ValueError, match="no history"):
        RateQuota(1, windows=0)


@given(
    records=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 1000)), max_size=50),
    limit=st.integers(1, 2000),
)
def test_throttling_ends_at_the_latest_when_all_windows_have_passed(
    records: list[tuple[float, int]], limit: int
) -> None:
    quota = RateQuota(limit)
    now_s = 0.0
    for pause_s, size in records:
        now_s += pause_s
        quota.record(size, now_s)
    recorded_s = now_s
    while (wait_ms := quota.throttle_ms(now_s)) > 0:
        assert quota.rate(now_s) > limit
        now_s += min(wait_ms, 1000) / 1000
    assert now_s - recorded_s <= (quota.windows + 1) * quota.window_s
