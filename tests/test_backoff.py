import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.backoff import Backoff


def test_delay_doubles_up_to_the_cap() -> None:
    backoff = Backoff(base_s=1, cap_s=10, jitter=0)
    assert [backoff.delay_s(n, random=lambda: 0.5) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(failures=st.integers(1, 10**9), random=st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_its_bounds_for_any_number_of_failures(failures: int, random: float) -> None:
    plain = Backoff(base_s=0.5, cap_s=30, jitter=0).delay_s(failures, random=lambda: random)
    jittered = Backoff(base_s=0.5, cap_s=30, jitter=0.2).delay_s(failures, random=lambda: random)
    assert plain * 0.8 <= jittered <= plain * 1.2


@pytest.mark.parametrize(
    ("failures", "random", "delay_s"),
    [(1, 0.5, 0.5), (2, 0.5, 1.0), (7, 0.5, 30.0), (1000, 0.5, 30.0), (1, 0.0, 0.4), (1, 1.0, 0.6)],
)
def test_default_delay_doubles_up_to_the_cap_with_jitter(failures: int, random: float, delay_s: float) -> None:
    assert Backoff().delay_s(failures, random=lambda: random) == pytest.approx(delay_s)
