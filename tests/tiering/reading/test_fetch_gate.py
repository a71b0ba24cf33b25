"""FetchGate: places, their queue, and the quota."""

import asyncio

import pytest

from tests.coded import coded
from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tierd.errors import RemoteStorageError, RetriableRemoteStorageError, TierErrorCode
from tierd.tiering.capacity import RateQuota
from tierd.tiering.reading.fetch_gate import FetchGate


@pytest.fixture
def gate() -> FetchGate:
    return FetchGate(concurrency=2, max_pending=2, quota=RateQuota(), clock=FakeClock())


class Reads:
    """Reads that end on a signal of the test."""

    def __init__(self, gate: FetchGate) -> None:
        self._gate = gate
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def start(self, name: str) -> "asyncio.Task[None]":
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self._run(name))

    async def _run(self, name: str) -> None:
        async with self._gate.place(name):
            self.begun.append(name)
            await self.ends[name].wait()


@pytest.fixture
def reads(gate: FetchGate) -> Reads:
    return Reads(gate)


async def running(gate: FetchGate, running: int, pending: int) -> None:
    await eventually(
        lambda: (gate.statistics().running, gate.statistics().pending) == (running, pending), what="the queue"
    )


@pytest.mark.spec("remote-tiering 206")
async def test_read_is_refused_at_once_when_the_queue_is_full(gate: FetchGate, reads: Reads) -> None:
    tasks = [reads.start(name) for name in "abcd"]
    await running(gate, 2, 2)
    with pytest.raises(RetriableRemoteStorageError, check=coded(TierErrorCode.READER_BUSY)) as refused:
        async with gate.place("read e"):
            pytest.fail("there was no place")
    assert refused.value.retriable
    assert gate.statistics().rejected == 1
    for name in "abcd":
        reads.ends[name].set()
    await asyncio.gather(*tasks)
    await running(gate, 0, 0)


async def test_reads_get_places_in_order_of_arrival(gate: FetchGate, reads: Reads) -> None:
    tasks = [reads.start(name) for name in "abcd"]
    await running(gate, 2, 2)
    for name in "badc":
        reads.ends[name].set()
    await asyncio.gather(*tasks)
    assert reads.begun == ["a", "b", "c", "d"]


@pytest.mark.spec("remote-tiering 207")
async def test_read_that_is_cancelled_in_the_queue_leaves_the_queue_and_does_not_run(
    gate: FetchGate, reads: Reads
) -> None:
    tasks = [reads.start(name) for name in "abcd"]
    await running(gate, 2, 2)
    tasks[2].cancel()
    await asyncio.wait({tasks[2]})
    await running(gate, 2, 1)
    for name in "abd":
        reads.ends[name].set()
    await asyncio.gather(tasks[0], tasks[1], tasks[3])
    assert reads.begun == ["a", "b", "d"]
    await running(gate, 0, 0)


async def test_place_of_a_read_cancelled_at_its_admission_is_passed_to_the_next_read(
    gate: FetchGate, reads: Reads
) -> None:
    tasks = [reads.start(name) for name in "abcd"]
    await running(gate, 2, 2)
    reads.ends["a"].set()
    await tasks[0]
    tasks[2].cancel()  # it may have got its place in this turn of the loop
    await asyncio.wait({tasks[2]})
    await eventually(lambda: "d" in reads.begun, what="the next one")
    for name in "bd":
        reads.ends[name].set()
    await asyncio.gather(tasks[1], tasks[3])
    await running(gate, 0, 0)


async def test_close_refuses_waiting_and_later_reads(gate: FetchGate, reads: Reads) -> None:
    tasks = [reads.start(name) for name in "abc"]
    await running(gate, 2, 1)
    gate.close()
    with pytest.raises(RemoteStorageError, check=coded(TierErrorCode.READER_CLOSED)):
        await tasks[2]
    with pytest.raises(RemoteStorageError, check=coded(TierErrorCode.READER_CLOSED)):
        async with gate.place("late"):
            pytest.fail("it was closed")
    reads.ends["a"].set()
    reads.ends["b"].set()
    await asyncio.gather(tasks[0], tasks[1])
    assert gate.statistics().running == 0


async def test_gate_throttles_by_the_bytes_recorded_in_its_quota() -> None:
    clock = FakeClock()
    gate = FetchGate(concurrency=1, max_pending=1, quota=RateQuota(100), clock=clock)
    assert gate.throttle_ms() == 0
    gate.record(500)
    assert gate.throttle_ms() == 4000
    clock.advance(6)
    assert gate.throttle_ms() == 0
