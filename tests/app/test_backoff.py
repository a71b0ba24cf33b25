from hypothesis import given
from hypothesis import strategies as st

from tierd.app.backoff import Backoff


def test_waits_double_up_to_the_cap() -> None:
    backoff = Backoff(base_s=1, cap_s=10, jitter=0)
    assert [backoff.delay_s(n, random=lambda: 0.5) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(failures=st.integers(1, 10**9), random=st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_its_bounds_for_any_count(failures: int, random: float) -> None:
    plain = Backoff(base_s=0.5, cap_s=30, jitter=0).delay_s(failures, random=lambda: random)
    jittered = Backoff(base_s=0.5, cap_s=30, jitter=0.2).delay_s(failures, random=lambda: random)
    assert plain * 0.8 <= jittered <= plain * 1.2
