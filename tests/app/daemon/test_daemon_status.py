"""Causes of not being ready: an outage first and once, then causes that do not follow from it."""

from collections.abc import Sequence

import pytest

from tests.fakes.clock import FakeClock
from tierd.app.daemon.daemon_status import LOADING_INTERVAL_S, LoadingWatch, not_ready_causes
from tierd.model import TopicPartition
from tierd.serve import Outage, Service


def outage(service: Service) -> Outage:
    return Outage(service=service, since_ms=1_700_000_000_000, problem="connection refused")


def causes(
    *,
    outages: Sequence[Outage] = (),
    stopping: str = "",
    is_reconciled: bool = True,
    loading: Sequence[str] = (),
    unknown_roles: str = "",
    unowned_tier: str = "",
) -> list[str]:
    return not_ready_causes(
        outages=outages,
        stopping=stopping,
        is_reconciled=is_reconciled,
        loading=loading,
        unknown_roles=unknown_roles,
        unowned_tier=unowned_tier,
    )


def test_daemon_with_all_services_and_everything_loaded_is_ready() -> None:
    assert causes() == []


@pytest.mark.parametrize(
    ("service", "name"),
    [("object_store", "object store"), ("metadata_store", "metadata store"), ("kafka", "Kafka")],
)
def test_outage_is_the_first_cause_with_its_begin_and_problem(service: Service, name: str) -> None:
    told = causes(outages=[outage(service)], stopping="SIGTERM")

    assert told == [f"{name} unreachable since 2023-11-14 22:13:20 UTC: connection refused", "stopping: SIGTERM"]


@pytest.mark.parametrize(
    ("service", "left"),
    [
        ("object_store", ["no roles"]),
        ("metadata_store", ["no roles"]),
        ("kafka", ["the tier cannot be written: no answer"]),
    ],
)
def test_consequence_of_an_outage_is_no_further_cause(service: Service, left: list[str]) -> None:
    told = causes(outages=[outage(service)], unknown_roles="no roles", unowned_tier="no answer")

    assert told[1:] == left


def test_loading_partitions_are_counted_and_some_are_named() -> None:
    told = causes(loading=[f"orders-{n}" for n in range(7)])

    assert told == [
        "the metadata of 7 partitions is still being loaded: orders-0, orders-1, orders-2, orders-3, orders-4, …"
    ]


def test_unscanned_log_dirs_are_named_before_loading_partitions() -> None:
    assert causes(is_reconciled=False, loading=["orders-0"]) == ["the log dirs have not been scanned completely yet"]


def test_partitions_that_are_being_loaded_are_searched_for_once_in_an_interval() -> None:
    clock, loading, searches = FakeClock(), [TopicPartition("orders", 0), TopicPartition("orders", 1)], 0

    def find() -> tuple[TopicPartition, ...]:
        nonlocal searches
        searches += 1
        return tuple(loading)

    watch = LoadingWatch(find, clock=clock)
    assert list(watch.partitions()) == loading
    first = loading.pop(0)
    assert first in watch.partitions()
    assert searches == 1
    clock.advance(LOADING_INTERVAL_S)
    assert list(watch.partitions()) == loading
    assert searches == 2


def test_answer_without_partitions_that_are_being_loaded_is_not_kept() -> None:
    loading: list[TopicPartition] = []
    watch = LoadingWatch(lambda: tuple(loading), clock=FakeClock())
    assert watch.partitions() == ()
    loading.append(TopicPartition("orders", 0))
    assert list(watch.partitions()) == loading
