import pytest

from tierd.cost.billed_requests import RequestClass
from tierd.cost.prices import FREE, GIB, PriceList, RequestPrices, TrafficPrices
from tierd.cost.report import HOURS_PER_MONTH, cost_report
from tierd.cost.usage_ledger import HOUR_MS, STORED, UsageLine

PRICES = PriceList(
    storage_per_gib_month=0.73,
    per_1000_requests=RequestPrices(put=10, list=5, get=1, delete=0),
    per_gib=TrafficPrices(upload=2, download=3),
)
START_MS = 1_763_726_400_000


def line(hour: int, operation: str, *, requests: int = 0, size_bytes: int = 0, topic: str = "orders") -> UsageLine:
    return UsageLine(START_MS + hour * HOUR_MS, topic, operation, requests, size_bytes)


def test_report_without_usage_has_no_costs() -> None:
    report = cost_report([], PRICES, to_ms=START_MS)

    assert (report.hours, report.topics, report.past.total, report.month.total) == (0, (), 0, 0)


def test_requests_traffic_and_storage_are_priced() -> None:
    lines = [
        line(0, "put", requests=100, size_bytes=GIB),
        line(0, "get", requests=2000, size_bytes=2 * GIB),
        line(0, STORED, size_bytes=GIB),
        line(9, STORED, size_bytes=GIB),
    ]

    (topic,) = cost_report(lines, PRICES, to_ms=START_MS + 10 * HOUR_MS).topics

    assert topic.past.requests == pytest.approx(100 / 1000 * 10 + 2000 / 1000 * 1)
    assert topic.past.traffic == pytest.approx(1 * 2 + 2 * 3)
    assert topic.past.storage == pytest.approx(10 / HOURS_PER_MONTH * 0.73)
    assert (topic.uploaded_bytes, topic.downloaded_bytes, topic.stored_bytes) == (GIB, 2 * GIB, GIB)
    assert topic.requests == {RequestClass.PUT: 100, RequestClass.GET: 2000}


def test_costs_of_a_month_are_projected_from_the_period() -> None:
    lines = [line(0, "put", requests=73), line(0, STORED, size_bytes=0), line(72, STORED, size_bytes=73 * GIB)]

    (topic,) = cost_report(lines, PRICES, to_ms=START_MS + 73 * HOUR_MS).topics

    assert topic.month.requests == pytest.approx(730 / 1000 * 10)
    # The topic grew by 1 GiB an hour: over the next 730 hours it has 73 + 365 GiB on average.
    assert topic.month.storage == pytest.approx((73 + 365) * 0.73)


def test_hour_without_a_sample_has_the_stored_bytes_of_the_last_sample() -> None:
    lines = [line(0, STORED, size_bytes=GIB), line(4, STORED, size_bytes=3 * GIB)]

    (topic,) = cost_report(lines, PRICES, to_ms=START_MS + 5 * HOUR_MS).topics

    assert topic.past.storage == pytest.approx((4 * 1 + 3) / HOURS_PER_MONTH * 0.73)


def test_topics_are_ordered_by_falling_costs() -> None:
    lines = [line(0, "put", requests=n, topic=topic) for n, topic in ((1, "a"), (3, "b"), (2, "c"))]

    report = cost_report(lines, PRICES, to_ms=START_MS + HOUR_MS)

    assert [topic.topic for topic in report.topics] == ["b", "c", "a"]
    assert report.past.requests == pytest.approx(6 / 1000 * 10)
    assert cost_report(lines, FREE, to_ms=START_MS + HOUR_MS).month.total == 0
