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


async def test_read_beyond_the_deadline_is_reported_as_unavailable(
    inner: FaultyKeyValueStore, clock: FakeClock
) -> None:
    inner.read_faults.append(Fault.HANG)
    with pytest.raises(BackendUnavailableError, match=r"0\.01 s"):
        await timed(inner, clock).scan("")


async def test_batch_beyond_the_deadline_has_an_unknown_outcome(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    inner.apply_faults.append(Fault.HANG)
    with pytest.raises(OutcomeUnknownError, match=r"0\.01 s"):
        await timed(inner, clock).apply(Batch([Put("a", b"1")]))


async def test_errors_of_the_store_pass_unchanged(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    inner.apply_faults.append(Fault.FAIL)
    with pytest.raises(BackendUnavailableError, match="refused for a test"):
        await timed(inner, clock, timeout_s=5).apply(Batch([]))


async def test_cancelled_call_is_cancelled_and_not_reported_as_a_timeout(
    inner: FaultyKeyValueStore, clock: FakeClock
) -> None:
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


async def test_failed_precondition_is_not_counted_as_an_error(inner: FaultyKeyValueStore, clock: FakeClock) -> None:
    store = timed(inner, clock, timeout_s=5)
    with pytest.raises(PreconditionFailedError):
        await store.apply(Batch([], [Expect("a", b"1")]))
    assert store.latencies()["apply"].errors == 0


async def test_outcome_of_a_call_has_a_failure_only_when_the_store_did_not_answer(
    inner: FaultyKeyValueStore, clock: FakeClock
) -> None:
    outcomes = list[TierError | None]()
    store = DeadlineKeyValueStore(inner, timeout_s=0.01, clock=clock, on_outcome=outcomes.append)
    await store.get("a")
    with pytest.raises(PreconditionFailedError):
        await store.apply(Batch([], [Expect("a", b"1")]))
    assert outcomes == [None, None]
    outcomes.clear()
    inner.read_faults.extend([Fault.FAIL, Fault.HANG])
    inner.apply_faults.append(Fault.HANG)

    for call in (store.get("a"), store.scan(""), store.apply(Batch([]))):
        with pytest.raises((BackendUnavailableError, OutcomeUnknownError)):
            await call

    assert [type(failure) for failure in outcomes] == [
        BackendUnavailableError,
        BackendUnavailableError,
        OutcomeUnknownError,
    ]


async def test_refused_write_is_an_outcome_without_a_failure(clock: FakeClock) -> None:
    outcomes = list[TierError | None]()
    store = DeadlineKeyValueStore(Full(), timeout_s=5, clock=clock, on_outcome=outcomes.append)
    with pytest.raises(WritesRefusedError):
        await store.apply(Batch([Put("a", b"1")]))
    assert outcomes == [None]
    assert store.latencies()["apply"].errors == 1


class Full(MemoryKeyValueStore):
    """A store without room."""

    async def apply(self, batch: Batch) -> None:
        raise WritesRefusedError("the disk is full", remedy="make room")
