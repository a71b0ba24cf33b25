"""QuotaGate: broker-wide, in order of arrival, charged before the upload; and copy tasks in front of it."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.tiering.copying.test_copy_task import Setup
from tests.tiering.setups import Recorded
from tierd.config import CopySettings
from tierd.tiering.capacity import QuotaGate, RateQuota, Slots


class StoppedClock(FakeClock):
    """Clock that stands still: sleeping tasks sleep until they are cancelled or the test moves the time."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeping = asyncio.Event()
        self._moved = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        due_s = self.monotonic_s() + delay_s
        self.sleeping.set()
        while self.monotonic_s() < due_s:
            await self._moved.wait()

    def advance(self, delay_s: float) -> None:
        super().advance(delay_s)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _gate(clock: FakeClock, limit: float = 50) -> tuple[QuotaGate, Recorded]:
    recorder = Recorded()
    return QuotaGate(RateQuota(limit), recorder=recorder, clock=clock), recorder


async def test_gate_with_a_free_quota_admits_at_once_and_charges_the_quota() -> None:
    clock = FakeClock()
    gate, recorder = _gate(clock)
    assert await gate.admit(500)
    assert (clock.sleeps_s, recorder.copy_throttles_ms) == ([], [])
    assert gate.quota.rate(clock.monotonic_s()) == 500


async def test_exceeded_quota_is_checked_again_every_second() -> None:
    clock = FakeClock()
    gate, recorder = _gate(clock)
    await gate.admit(150)
    assert await gate.admit(1)
    assert clock.sleeps_s == [1.0, 1.0, 1.0]
    assert recorder.copy_throttles_ms == [2000, 2000, 1000], "the first window counts whole from its first moment on"


async def test_gate_admits_segments_in_the_order_of_their_arrival() -> None:
    clock = StoppedClock()
    gate, _ = _gate(clock)
    await gate.admit(100)
    passed: list[int] = []

    async def wait(number: int) -> None:
        await gate.admit(1)
        passed.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(wait(number))
        await clock.sleeping.wait()
        assert passed == []
        clock.advance(10)
    assert passed == [0, 1, 2, 3, 4]


async def test_cancelled_wait_is_not_charged_and_the_next_segment_passes() -> None:
    clock = StoppedClock()
    gate, _ = _gate(clock)
    await gate.admit(100)
    first, second = (asyncio.create_task(gate.admit(size)) for size in (1_000_000, 1))
    await clock.sleeping.wait()
    first.cancel()
    await asyncio.wait([first])
    clock.advance(20)
    assert await second
    assert gate.quota.rate(clock.monotonic_s()) == 1, "only the admitted segment was charged"


async def test_new_limit_applies_to_segments_that_wait() -> None:
    clock = FakeClock()
    gate, _ = _gate(clock)
    await gate.admit(50_000)
    gate.quota.set_limit(50_000)
    assert await gate.admit(1)
    assert clock.sleeps_s == []


@pytest.mark.spec("remote-tiering 147")
async def test_close_refuses_waiting_segments_at_once() -> None:
    clock = StoppedClock()
    gate, _ = _gate(clock)
    await gate.admit(10_000)
    waiting = [asyncio.create_task(gate.admit(1)) for _ in range(3)]
    await clock.sleeping.wait()
    gate.close()
    async with asyncio.timeout(60):
        assert await asyncio.gather(*waiting) == [False, False, False]
    assert not await gate.admit(1)


async def test_segment_that_is_no_longer_wanted_is_not_charged_and_the_next_segment_passes() -> None:
    clock = StoppedClock()
    gate, _ = _gate(clock)
    await gate.admit(100)
    wanted = True
    first = asyncio.create_task(gate.admit(1_000_000, is_wanted=lambda: wanted))
    second = asyncio.create_task(gate.admit(1))
    await clock.sleeping.wait()
    wanted = False
    clock.advance(20)
    assert (await first, await second) == (False, True)
    assert gate.quota.rate(clock.monotonic_s()) == 1


class TestCopyTask:
    @pytest.fixture
    def setup(self, tmp_path: Path) -> Setup:
        setup = Setup(tmp_path)
        self.clock = StoppedClock()
        setup.tier.clock = self.clock
        setup.session = setup.new_session(CopySettings(max_bytes_per_second=50))
        return setup

    @pytest.mark.spec("remote-tiering 144")
    async def test_no_segment_is_uploaded_while_the_quota_is_exceeded(self, setup: Setup) -> None:
        setup.session.tiering.capacity.quota.record(10_000, self.clock.monotonic_s())
        passing = asyncio.create_task(setup.session.copy_once())
        await self.clock.sleeping.wait()
        assert setup.storage.copied == []
        assert setup.session.rows(setup.partition) == [], "not even a row was written"
        assert setup.session.recorder.copy_throttles_ms
        (status,) = setup.session.manager.status()
        assert (status.state, status.reason.startswith("queued")) == ("copying", True)
        passing.cancel()
        await asyncio.wait([passing])
        assert setup.session.recorder.failures == 0

    @pytest.mark.spec("remote-tiering 145")
    async def test_a_free_quota_is_charged_before_the_upload(self, setup: Setup) -> None:
        quota = setup.session.tiering.capacity.quota
        quota.set_limit(1 << 40)
        charged: list[float] = []
        setup.storage.on_copy = lambda: charged.append(quota.rate(self.clock.monotonic_s()))
        assert (await setup.run()).status.copied_through == 15
        assert charged == [1794, 2 * 1794], "one segment at a time"
        assert setup.session.recorder.copy_throttles_ms == []

    @pytest.mark.spec("remote-tiering 146")
    async def test_second_segment_waits_for_the_quota_after_the_first(self, setup: Setup) -> None:
        passing = asyncio.create_task(setup.session.copy_once())
        await self.clock.sleeping.wait()
        assert setup.finished == [(0, 7)]
        (status,) = setup.session.manager.status()
        assert status.copied_through == 7
        self.clock.advance(60)
        await passing
        assert setup.finished == [(0, 7), (8, 15)]

    @pytest.mark.spec("remote-tiering 147")
    async def test_a_task_that_waits_for_the_quota_delays_no_stop(self, setup: Setup) -> None:
        passing = asyncio.create_task(setup.session.copy_once())
        await self.clock.sleeping.wait()
        async with asyncio.timeout(60):
            setup.session.manager.stop_intake()
            await passing
        assert setup.finished == [(0, 7)]

    async def test_a_segment_that_waits_for_the_quota_does_not_begin_once_it_is_paused(self, setup: Setup) -> None:
        passing = asyncio.create_task(setup.session.copy_once())
        await self.clock.sleeping.wait()
        setup.session.manager.pause([setup.partition.topic_partition])
        self.clock.advance(60)
        await passing
        assert setup.finished == [(0, 7)]
        assert len(setup.session.rows(setup.partition)) == 1
        setup.session.manager.resume()
        assert (await setup.run()).status.copied_through == 15

    async def test_a_segment_that_waits_for_a_slot_does_not_begin_once_it_is_paused(self, setup: Setup) -> None:
        slots = Slots(1)
        await slots.acquire()
        setup.session = setup.tier.session(storage=lambda _: setup.storage, slots=slots)
        passing = asyncio.create_task(setup.session.copy_once())
        await eventually(
            lambda: any("queued" in each.reason for each in setup.session.manager.status()), what="the wait for a slot"
        )
        setup.session.manager.pause()
        slots.release()
        await passing
        assert setup.session.rows(setup.partition) == []
        assert slots.idle_ratio == 1.0, "its slot is released"
