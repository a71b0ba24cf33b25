"""Calls that count for an outage, and the probes that find its end while the daemon makes no other calls."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.app.services import service_watch
from tierd.app.services.service_watch import Reachability, ServiceWatch
from tierd.errors import (
    BackendUnavailableError,
    LogDirOfflineError,
    RemoteAccessError,
    RemoteResourceNotFoundError,
    RemoteStorageFullError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.remote import ObjectStoreCall


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watch(clock: ManualClock) -> ServiceWatch:
    return ServiceWatch(clock=clock, random=lambda: 0.5, with_kafka=False)


def attempt(outcome: str, failure: TierError | None = None) -> ObjectStoreCall:
    return ObjectStoreCall("put", "key", outcome, 0.1, 0, failure)


def fail(reachability: Reachability, clock: ManualClock) -> None:
    for _ in range(3):
        reachability.failed("refused")
        clock.advance(1)


UNANSWERED = attempt("retriable", RetriableRemoteStorageError("no route to host"))


def test_attempts_that_are_not_answered_are_an_outage(watch: ServiceWatch, clock: ManualClock) -> None:
    for _ in range(3):
        watch.object_store_attempted(UNANSWERED)
        clock.advance(1)

    assert [(outage.service, outage.problem) for outage in watch.outages()] == [("object_store", "no route to host")]
    assert watch.unreachable_s() == {"object_store": 3.0, "metadata_store": 0.0}


@pytest.mark.parametrize(
    "answer",
    [
        attempt("ok"),
        attempt("not_found", RemoteResourceNotFoundError("no such object")),
        attempt("refused", RemoteAccessError("wrong credentials")),
        attempt("retriable", RemoteStorageFullError("no space left")),
    ],
    ids=lambda call: call.outcome,
)
def test_any_answer_of_the_store_ends_the_outage(
    watch: ServiceWatch, clock: ManualClock, answer: ObjectStoreCall
) -> None:
    fail(watch.object_store, clock)

    watch.object_store_attempted(answer)

    assert watch.outages() == ()


@pytest.mark.parametrize(
    "call",
    [attempt("cancelled"), attempt("failed"), attempt("retriable", LogDirOfflineError("the local disk fails"))],
    ids=["cancelled", "a bug", "the source of an upload"],
)
def test_call_that_ended_for_another_reason_neither_begins_nor_ends_an_outage(
    watch: ServiceWatch, clock: ManualClock, call: ObjectStoreCall
) -> None:
    for _ in range(5):
        watch.object_store_attempted(call)
        clock.advance(5)
    assert watch.outages() == ()
    fail(watch.object_store, clock)

    watch.object_store_attempted(call)

    assert len(watch.outages()) == 1


def test_kafka_is_among_the_services_only_with_a_connection(clock: ManualClock) -> None:
    assert "kafka" in ServiceWatch(clock=clock, random=lambda: 0.5, with_kafka=True).unreachable_s()


@asynccontextmanager
async def probing(watch: ServiceWatch, probe: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    running = asyncio.create_task(watch.run({"metadata_store": probe}))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


class Probe:
    """Probe that counts its calls and records their outcome, as the wrapper of the store does."""

    def __init__(self, reachability: Reachability) -> None:
        self.calls = 0
        self.failure: TierError | None = BackendUnavailableError("still down")
        self._reachability = reachability

    async def __call__(self) -> None:
        self.calls += 1
        self._reachability.outcome(self.failure)
        if self.failure is not None:
            raise self.failure


async def test_service_without_other_calls_is_probed_until_it_answers(watch: ServiceWatch, clock: ManualClock) -> None:
    probe = Probe(watch.metadata_store)
    async with probing(watch, probe):
        fail(watch.metadata_store, clock)
        for calls in (1, 2, 3):
            await eventually(lambda: clock.sleeping == 1, what="the pause")
            clock.advance(15)
            await eventually(lambda calls=calls: probe.calls == calls, what="a probe")  # type: ignore[misc]
        assert watch.outages()[0].problem == "still down"
        probe.failure = None
        await eventually(lambda: clock.sleeping == 1, what="the pause")
        clock.advance(15)
        await eventually(lambda: watch.outages() == (), what="the end of the outage")


async def test_service_that_answers_is_not_probed(watch: ServiceWatch, clock: ManualClock) -> None:
    probe = Probe(watch.metadata_store)
    async with probing(watch, probe):
        watch.metadata_store.answered()
        for _ in range(20):
            await asyncio.sleep(0)
            clock.advance(60)
    assert probe.calls == 0
    assert clock.sleeping == 0


async def test_service_with_other_calls_is_not_probed(watch: ServiceWatch, clock: ManualClock) -> None:
    probe = Probe(watch.metadata_store)
    async with probing(watch, probe):
        fail(watch.metadata_store, clock)
        for _ in range(5):
            await eventually(lambda: clock.sleeping == 1, what="the pause")
            clock.advance(14)
            watch.metadata_store.failed("refused")
            clock.advance(1)
    assert probe.calls == 0


async def test_probe_that_hangs_is_a_failed_call(
    watch: ServiceWatch, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_watch, "_PROBE_TIMEOUT_S", 0.01)
    async with probing(watch, asyncio.Event().wait):
        watch.metadata_store.failed("timed out")
        await eventually(lambda: clock.sleeping == 1, what="the pause")
        clock.advance(15)
        await eventually(lambda: len(watch.outages()) == 1, what="the outage")
    assert "no answer within" in watch.outages()[0].problem


def given_up(after_s: float) -> ObjectStoreCall:
    return ObjectStoreCall("put", "key", "cancelled", after_s, 0)


@pytest.mark.parametrize("patience_s", [3, 12])
async def test_store_whose_calls_are_all_abandoned_is_probed_and_its_outage_is_found(
    patience_s: int, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_watch, "_PROBE_TIMEOUT_S", 0.01)
    watch = ServiceWatch(clock=clock, random=lambda: 0.5, with_kafka=False)
    running = asyncio.create_task(watch.run({"object_store": asyncio.Event().wait}))
    try:
        for _ in range(3):
            for _ in range(12 // patience_s):
                clock.advance(patience_s)
                watch.object_store_attempted(given_up(patience_s))
            await eventually(lambda: clock.sleeping == 1, what="the pause before a probe")
            clock.advance(15)
            await eventually(lambda: clock.sleeping == 1 or watch.outages() != (), what="a probe")
        await eventually(lambda: len(watch.outages()) == 1, what="the outage")
    finally:
        running.cancel()
        await asyncio.wait({running})
    assert "no answer within" in watch.outages()[0].problem


@pytest.mark.parametrize("answered_s_ago", [0, 11])
async def test_abandoned_call_near_an_answered_one_causes_no_probe(
    watch: ServiceWatch, clock: ManualClock, answered_s_ago: int
) -> None:
    clock.advance(60)
    watch.object_store_attempted(given_up(9))
    watch.object_store.answered()
    clock.advance(answered_s_ago)

    watch.object_store_attempted(given_up(12))

    assert not watch.object_store.suspected.is_set()
