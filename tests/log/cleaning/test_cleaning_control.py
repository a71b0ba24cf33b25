from concurrent.futures import ThreadPoolExecutor

from tierd.log.cleaning.cleaning_control import Throttle


def test_throttle_without_a_limit_does_not_pause() -> None:
    assert Throttle(None).pause_s(1 << 40, now_s=0.0) == 0.0


def test_bytes_above_a_short_burst_wait_until_the_rate_allows_them() -> None:
    throttle = Throttle(1000)
    assert throttle.pause_s(250, now_s=10.0) == 0.0
    assert throttle.pause_s(750, now_s=10.0) == 1.0
    assert throttle.pause_s(100, now_s=11.0) == 0.0


def test_idle_time_does_not_raise_the_later_rate() -> None:
    throttle = Throttle(1000)
    throttle.pause_s(1, now_s=0.0)
    assert throttle.pause_s(2000, now_s=1000.0) == 2.0


def test_threads_share_one_rate() -> None:
    throttle = Throttle(1000)
    with ThreadPoolExecutor(4) as pool:
        pauses_s = list(pool.map(lambda _: throttle.pause_s(1000, now_s=0.0), range(200)))
    assert sorted(pauses_s) == [float(n) for n in range(1, 201)]
