"""Reachability of a service from the outcomes of its calls: begin and cause of an outage, each change logged once."""

import pytest
from structlog.testing import capture_logs

from tests.fakes.clock import FakeClock
from tierd.app.services.service_watch import Reachability
from tierd.errors import BackendUnavailableError
from tierd.serve import Outage


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now_ms=1_700_000_000_000)


@pytest.fixture
def store(clock: FakeClock) -> Reachability:
    return Reachability("object_store", clock=clock)


def fail(store: Reachability, clock: FakeClock, *, times: int, apart_s: float) -> None:
    for n in range(times):
        if n:
            clock.advance(apart_s)
        store.failed("connection refused", remedy="look at the network")


def test_failures_in_a_row_are_an_outage_that_began_with_the_first(store: Reachability, clock: FakeClock) -> None:
    fail(store, clock, times=3, apart_s=1.0)
    clock.advance(5)

    assert store.outage == Outage(
        service="object_store",
        since_ms=1_700_000_000_000,
        problem="connection refused",
        remedy="look at the network",
    )
    assert store.outage_s == 7.0


@pytest.mark.parametrize(("times", "apart_s"), [(1, 0.0), (32, 0.0), (2, 9.0), (3, 0.5)])
def test_failures_that_are_few_or_simultaneous_are_no_outage(
    store: Reachability, clock: FakeClock, times: int, apart_s: float
) -> None:
    fail(store, clock, times=times, apart_s=apart_s)

    assert store.outage is None
    assert store.outage_s == 0
    assert store.suspected.is_set()


def test_two_failures_far_apart_are_an_outage(store: Reachability, clock: FakeClock) -> None:
    fail(store, clock, times=2, apart_s=10.0)

    assert store.outage is not None


def test_answer_between_failures_restarts_their_count(store: Reachability, clock: FakeClock) -> None:
    fail(store, clock, times=2, apart_s=5.0)
    store.answered()
    clock.advance(5)
    fail(store, clock, times=2, apart_s=5.0)

    assert store.outage is None


def test_outage_shows_its_latest_cause_and_its_first_time(store: Reachability, clock: FakeClock) -> None:
    fail(store, clock, times=3, apart_s=1.0)
    store.failed("no route\n to host")

    assert store.outage is not None
    assert (store.outage.problem, store.outage.since_ms) == ("no route to host", 1_700_000_000_000)


def test_each_change_is_logged_once(store: Reachability, clock: FakeClock) -> None:
    with capture_logs() as logs:
        fail(store, clock, times=9, apart_s=1.0)
        store.answered()
        store.answered()

    assert [entry["event"] for entry in logs] == ["service_unreachable", "service_reachable_again"]
    assert logs[0]["since_ms"] == 1_700_000_000_000
    assert logs[0]["problem"] == "connection refused"
    assert logs[0]["service"] == logs[1]["service"] == "object_store"
    assert logs[1]["unreachable_s"] == 8.0


def test_outcome_with_an_error_is_a_failure_and_without_one_an_answer(store: Reachability, clock: FakeClock) -> None:
    for _ in range(3):
        store.outcome(BackendUnavailableError("down", remedy="start it"))
        clock.advance(1)
    outage = store.outage
    assert outage is not None
    assert (outage.problem, outage.remedy) == ("down", "start it")

    store.outcome(None)

    assert store.outage_s == 0
    assert not store.suspected.is_set()
