"""Overview: the worst first, and each reason with its section."""

import math

import pytest

from tests.serve.page.page_values import DAY_MS, NOW_MS, host_with, snapshot_of, status_of
from tests.serve.page.test_markup import Seen
from tests.serve.page.test_topic_pages import rows_of
from tierd.serve import Outage, RateSample, RateSeries
from tierd.serve.page.overview import render_overview
from tierd.serve.page.page_query import ListQuery
from tierd.serve.page.sparkline import render_sparkline, summary_of
from tierd.tiering.local.partition_log import CopyLag


def overview(**changes: object) -> str:
    return render_overview(snapshot_of(**changes), None, ListQuery())  # type: ignore[arg-type]


def test_quarantined_partition_is_first_and_of_equal_states_the_latest() -> None:
    late = CopyLag(segments=1, bytes=5000, oldest_ms=NOW_MS - 7_500_000)
    html = overview(partitions=(status_of("a-0"), status_of("b-0", lag=late), status_of("c-0", "quarantined")))
    assert rows_of(html) == ["c-0", "b-0", "a-0"]
    assert "2 h 5 min" in html


def test_ten_thousand_partitions_are_pages() -> None:
    html = render_overview(snapshot_of([status_of(f"t-{n}") for n in range(10_000)]), None, ListQuery(page=2))
    assert len(rows_of(html)) == 100
    assert "101 to 200 of 10,000 partitions" in html
    assert len(html) < 100_000


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"not_ready": ("no leaders",)}, ["not ready: no leaders", "/help/ready-alive"]),
        ({"drills": {"failing": {"a-0": "failed: torn"}}}, ["drill of a-0 failed: torn", "/help/tierddrillfails"]),
        ({}, ["no drill is scheduled", "/help/drills"]),
        ({"catalogue": {"problems": {"p": "no route"}}}, ["is not whole: no route", "/help/the-catalogue"]),
        ({"descriptors": {"open": 9, "limit": 10, "near_limit": True}}, ["9 of 10 descriptors", "/help/the-ports"]),
        ({"own_logs": {"uncleanable": {"a-0": "torn"}}}, ["a-0 is not cleaned", "/help/what-can-go-wrong"]),
        (
            {"unprotected": {"bytes": 2 << 20, "seconds": 70.0, "partition": "a-0"}},
            ["2.0 MiB", "1 min 10 s old, of a-0", "/help/tierdunprotected"],
        ),
        (
            {"hold": {"segments": 1, "bytes": 2, "unheld_segments": 5, "unheld_reason": "limit"}},
            ["5 segments wait without a hold: limit", "/help/tierdholdfull"],
        ),
        (
            {"outages": (Outage(service="object_store", since_ms=NOW_MS - 65_000, problem="no route", remedy="look"),)},
            ["no answer of the object store for 1 min 5 s", "object store: look", "/help/the-store-is-down-slow"],
        ),
        (
            {"pipeline": {"enabled": True, "running": None, "next_begin_ms": None,
                          "last_run": {"ended_ms": NOW_MS, "outcome": "timed_out"}}},
            ["timed out", "/help/tierdpipelinefails"],
        ),
        (
            {"drills": {"enabled": True, "partitions": 2, "proven_until_ms": NOW_MS - 40 * DAY_MS}},
            ["2 of 2 partitions proven", "/help/tierdproofisold"],
        ),
    ],
)  # fmt: skip
def test_problem_that_needs_a_person_is_shown_with_a_link_to_its_section(
    changes: dict[str, object], texts: list[str]
) -> None:
    html = overview(**changes)
    for text in texts:
        assert text in html


def test_consumers_are_listed_with_the_largest_lag_first() -> None:
    group = {"state": "Stable", "members": 1, "partitions": 2}
    groups = {"small": group | {"lag": 5, "is_lag_complete": True}, "<big>": group | {"lag": 5000}}
    html = overview(endpoint={"listeners": {"PLAIN": {"connections": 3}}, "groups": groups})
    assert rows_of(html) == ["<big>", "small"]
    assert "at least 5,000" in html


def test_process_without_partitions_and_tier_has_an_overview() -> None:
    assert "This process has no partitions" in overview(unprotected={}, totals={}, hold={})


def test_series_is_drawn_and_said() -> None:
    html = render_overview(host_with(4).snapshot, host_with(4).rates, ListQuery())
    seen = Seen(html)
    labels = [str(attributes["aria-label"]) for tag, attributes in seen.tags if tag == "svg"]
    assert len(labels) == 6
    assert labels[0].startswith("Copied to the tier over the last day: now 2.8 MiB/s, largest 2.8 MiB/s, mean")


def test_series_without_a_sample_says_so() -> None:
    assert "no sample yet" in render_sparkline("Lag", RateSeries().values("lag_bytes"), str)


def test_missing_minutes_break_the_line() -> None:
    series = RateSeries()
    for minute in (0, 1, 2, 600, 601, 602):
        series.add(minute * 60.0, RateSample(lag_bytes=minute))
    assert render_sparkline("Lag", series.values("lag_bytes"), str).count("<polyline") == 2


def test_last_value_is_the_last_one_that_is_known() -> None:
    found = summary_of([1.0, 3.0, math.nan])
    assert (found.last, found.largest, found.mean) == (3.0, 3.0, 2.0)
    assert summary_of([math.nan]).last is None
