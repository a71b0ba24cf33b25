import asyncio
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.errors import RetriableRemoteStorageError
from tierd.model import ByteRange
from tierd.remote import Body, FileBody
from tierd.remote.deadlines import Deadlines
from tierd.remote.limited import ByteRate, LimitedObjectStore
from tierd.testing import ObjectStoreContract, ObjectVersionsContract, content_of, file_body

AT_ONCE = Deadlines(base_s=0.01)


class TestLimitedObjectStore(ObjectStoreContract, ObjectVersionsContract):
    @pytest.fixture
    def store(self) -> LimitedObjectStore:
        rate = ByteRate(1 << 20, clock=FakeClock())
        return LimitedObjectStore(MemoryObjectStore(), deadlines=Deadlines(), max_calls=4, upload_rate=rate)


class BlackHole(MemoryObjectStore):
    """Swallows every call."""

    async def put(self, key: str, body: Body) -> None:
        await asyncio.Event().wait()

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def check(self) -> None:
        await asyncio.Event().wait()


async def test_a_call_that_never_ends_is_ended_and_may_be_repeated() -> None:
    store = LimitedObjectStore(BlackHole(), deadlines=AT_ONCE, max_calls=1)
    with pytest.raises(RetriableRemoteStorageError, match=r"put a/key: .* within 0\.01"):
        await store.put("a/key", b"")
    with pytest.raises(RetriableRemoteStorageError, match="get a/key"):
        await store.get("a/key", ByteRange(0, 0))
    with pytest.raises(RetriableRemoteStorageError, match="check"):
        await store.check()


def test_deadline_is_longer_for_more_bytes() -> None:
    deadlines = Deadlines(base_s=10, min_bytes_per_second=1000)
    assert deadlines.for_size(0) == 10
    assert deadlines.for_size(5000) == 15


async def test_calls_at_a_time_are_bounded() -> None:
    running, most = 0, 0

    class CountingStore(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return b""

    store = LimitedObjectStore(CountingStore(), deadlines=Deadlines(), max_calls=3)
    await asyncio.gather(*(store.get("key") for _ in range(10)))
    assert most == 3


async def test_cancelled_caller_leaves_its_place_to_others() -> None:
    hole = BlackHole()
    store = LimitedObjectStore(hole, deadlines=Deadlines(), max_calls=1)
    first, second = (asyncio.create_task(store.get("key")) for _ in range(2))
    await asyncio.sleep(0)
    for task in (second, first):
        task.cancel()
    await asyncio.wait({first, second})
    await store.delete("key")


async def test_the_rate_is_kept_on_average_and_idle_time_saves_up_one_second_at_most() -> None:
    clock = FakeClock()
    rate = ByteRate(1000, clock=clock)
    await rate.take(1000)  # one second's worth at once
    assert clock.sleeps_s == []
    await rate.take(500)
    await rate.take(3000)  # larger than the bucket
    assert clock.sleeps_s == pytest.approx([0.5, 3.0])
    clock.advance(100)
    await rate.take(1000)
    await rate.take(1000)
    assert clock.sleeps_s == pytest.approx([0.5, 3.0, 1.0])


async def test_waiting_callers_of_the_rate_queue_up_behind_one_another() -> None:
    clock = FakeClock()
    rate = ByteRate(1000, clock=clock)
    await asyncio.gather(rate.take(1000), rate.take(1000), rate.take(1000))
    assert clock.monotonic_s() >= 2.0


async def test_an_upload_is_paced_step_by_step(tmp_path: Path) -> None:
    clock = FakeClock()
    rate = ByteRate(1 << 20, clock=clock)
    store = LimitedObjectStore(MemoryObjectStore(), deadlines=Deadlines(), max_calls=1, upload_rate=rate)
    await store.put("key", file_body(tmp_path / "segment", content_of(4 << 20)))
    assert clock.sleeps_s == pytest.approx([1.0, 1.0, 1.0])
    await store.put("small", b"x" * (1 << 20))
    assert clock.monotonic_s() == pytest.approx(4.0)


async def test_time_spent_waiting_for_the_rate_does_not_count_against_the_deadline(tmp_path: Path) -> None:
    class SlowClock(FakeClock):
        async def sleep(self, delay_s: float) -> None:
            await asyncio.sleep(0.3)  # longer than the deadline
            self.advance(delay_s)

    rate = ByteRate(1 << 20, clock=SlowClock())
    deadlines = Deadlines(base_s=0.2, min_bytes_per_second=float("inf"))
    store = LimitedObjectStore(PacedHole(steps=3), deadlines=deadlines, max_calls=1, upload_rate=rate)
    with pytest.raises(RetriableRemoteStorageError):
        await store.put("key", file_body(tmp_path / "segment", content_of(3 << 20)))
    assert PacedHole.steps_taken == 3, "all steps were paced before the deadline struck"


class PacedHole(MemoryObjectStore):
    """Takes the steps of a body at once, all in parallel, and then never answers."""

    steps_taken = 0

    def __init__(self, *, steps: int) -> None:
        super().__init__()
        self._steps = steps

    async def put(self, key: str, body: Body) -> None:
        assert isinstance(body, FileBody)
        assert body.pace is not None
        await asyncio.gather(*(body.pace(1 << 20) for _ in range(self._steps)))
        type(self).steps_taken = self._steps
        await asyncio.Event().wait()
