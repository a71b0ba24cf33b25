import asyncio

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tierd.errors import BackendUnavailableError, OutcomeUnknownError, PreconditionFailedError, TierError
from tierd.metadata import Batch, Expect, MemoryKeyValueStore, Put
from tierd.metadata.kv import DeadlineKeyValueStore
from tierd.metadata.kv.deadline import CallLatency
from tierd.metadata.kv.refusals import WritesRefusedError


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def inner() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


def timed(inner: FaultyKeyValueStore, clock: FakeClock, *, timeout_s: float = 0.01) -> DeadlineKeyValueStore:
    return DeadlineKeyValueStore(inner, timeout_s=timeout_s, clock=clock)


async def test_a_read_that_takes_too_long_has_failed(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    inner.read_faults.append(Fault.HANG)
    with pytest.raises(BackendUnavailableError, match=r"0\.01 s"):
        await timed(inner, clock).scan("")


async def test_a_batch_that_takes_too_long_may_have_been_written(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    inner.apply_faults.append(Fault.HANG)
    with pytest.raises(OutcomeUnknownError, match=r"0\.01 s"):
        await timed(inner, clock).apply(Batch([Put("a", b"1")]))


async def test_errors_of_the_store_pass_unchanged(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    inner.apply_faults.append(Fault.FAIL)
    with pytest.raises(BackendUnavailableError, match="refused for a test"):
        await timed(inner, clock, timeout_s=5).apply(Batch([]))


async def test_a_cancelled_call_is_cancelled_and_no_timeout(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    inner.read_faults.append(Fault.HANG)
    reading = asyncio.ensure_future(timed(inner, clock, timeout_s=5).get("a"))
    await inner.hanging.wait()
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()


async def test_every_call_is_counted_with_its_time(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    store = timed(inner, clock, timeout_s=5)

    async def take_two_seconds() -> None:
        clock.advance(2)

    inner.before_apply = take_two_seconds
    inner.apply_faults.extend([None, Fault.FAIL])
    await store.apply(Batch([Put("a", b"1")]))
    with pytest.raises(BackendUnavailableError):
        await store.apply(Batch([]))
    assert await store.get("a") == b"1"
    assert await store.get_many(["a"]) == {"a": b"1"}
    assert store.latencies() == {"apply": CallLatency(2, 4.0, 1), "get": CallLatency(2, 0.0)}
    await store.close()


async def test_a_failed_precondition_is_an_answer_and_no_failure(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    store = timed(inner, clock, timeout_s=5)
    with pytest.raises(PreconditionFailedError):
        await store.apply(Batch([], [Expect("a", b"1")]))
    assert store.latencies()["apply"].errors == 0


async def test_each_call_is_told_with_the_failure_only_where_the_store_did_not_answer(
    inner: FaultyKeyValueStore, clock: FakeClock
) -> None:
    told = list[TierError | None]()
    store = DeadlineKeyValueStore(inner, timeout_s=0.01, clock=clock, on_outcome=told.append)
    await store.get("a")
    with pytest.raises(PreconditionFailedError):
        await store.apply(Batch([], [Expect("a", b"1")]))
    assert told == [None, None]
    told.clear()
    inner.read_faults.extend([Fault.FAIL, Fault.HANG])
    inner.apply_faults.append(Fault.HANG)

    for call in (store.get("a"), store.scan(""), store.apply(Batch([]))):
        with pytest.raises((BackendUnavailableError, OutcomeUnknownError)):
            await call

    assert [type(failure) for failure in told] == [
        BackendUnavailableError,
        BackendUnavailableError,
        OutcomeUnknownError,
    ]


async def test_store_that_takes_no_writes_for_now_has_answered(clock: FakeClock) -> None:
    told = list[TierError | None]()
    store = DeadlineKeyValueStore(Full(), timeout_s=5, clock=clock, on_outcome=told.append)
    with pytest.raises(WritesRefusedError):
        await store.apply(Batch([Put("a", b"1")]))
    assert told == [None]
    assert store.latencies()["apply"].errors == 1


class Full(MemoryKeyValueStore):
    """A store without room."""

    async def apply(self, batch: Batch) -> None:
        raise WritesRefusedError("the disk is full", remedy="make room")
