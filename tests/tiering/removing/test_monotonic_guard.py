"""Wall clock that leaps ahead: no segment expires by it until the leap has lasted for a while."""

from pathlib import Path

from tests.fakes.clock import FakeClock
from tests.tiering.removing.world import DELETING, FINISHED, World
from tierd.tiering.removing.monotonic_guard import LEAP_S, PATIENCE_S, MonotonicGuard
from tierd.tiering.topic_policy import TopicPolicy

YEAR_MS = 365 * 86_400_000


def test_clock_without_a_leap_is_that_of_the_host() -> None:
    host = FakeClock()
    clock = MonotonicGuard(host)
    for step_ms in (0, 100, -50, round(LEAP_S * 1000), -YEAR_MS):
        host.advance(60)
        host.step_wall_clock(step_ms)
        assert clock.now_ms() == host.now_ms()


def test_leap_is_accepted_once_it_has_lasted() -> None:
    host = FakeClock()
    clock = MonotonicGuard(host)
    before_ms = clock.now_ms()
    host.step_wall_clock(YEAR_MS)
    assert clock.now_ms() == before_ms
    host.advance(PATIENCE_S - 1)
    assert clock.now_ms() == before_ms + round((PATIENCE_S - 1) * 1000)
    host.advance(1)
    assert clock.now_ms() == host.now_ms()


def test_leap_that_was_corrected_does_not_count_for_a_later_leap() -> None:
    host = FakeClock()
    clock = MonotonicGuard(host)
    host.step_wall_clock(YEAR_MS)
    clock.now_ms()
    host.advance(PATIENCE_S / 2)
    host.step_wall_clock(-YEAR_MS)
    assert clock.now_ms() == host.now_ms()
    host.step_wall_clock(YEAR_MS)
    host.advance(PATIENCE_S / 2)
    assert clock.now_ms() < host.now_ms(), "another leap, and another wait"


async def test_leap_of_the_clock_ends_neither_retention_nor_a_grace(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.grace_s = 3600.0
    process = world.process(believes_leaps=False)
    await process.lead()
    await process.add(0, 99, age_ms=2 * 86_400_000)
    await process.add(100, 199)
    world.policy = TopicPolicy(retention_ms=86_400_000)
    task = process.task()
    await task.run_once()
    assert process.starts(DELETING) == [0]
    world.clock.step_wall_clock(10 * YEAR_MS)
    await task.run_once()
    assert (process.starts(DELETING), process.starts(FINISHED)) == ([0], [100])
    assert process.storage.deleted == []
    world.clock.advance(PATIENCE_S + 1)
    await task.run_once()
    assert process.storage.deleted, "a clock that stays there is right"
