"""Past costs of the tier, and the expected costs of a month at the same pace. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tierd.cost.billed_requests import RequestClass
from tierd.cost.prices import GIB, PriceList
from tierd.cost.usage_ledger import HOUR_MS, UsageLine, is_request

HOURS_PER_MONTH = 730.0


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount of money for storage, requests and traffic."""

    storage: float = 0.0
    requests: float = 0.0
    traffic: float = 0.0

    @property
    def total(self) -> float:
        """Return the sum of all parts."""
        return self.storage + self.requests + self.traffic

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.storage + other.storage, self.requests + other.requests, self.traffic + other.traffic)


@dataclass(frozen=True, slots=True)
class TopicCost:
    """Usage and costs of one topic in one period.

    Attributes:
        topic: its name; empty for usage that belongs to no topic.
        requests: by class.
        uploaded_bytes: sent to the store; ``downloaded_bytes``: received from it.
        stored_bytes: at the end of the period.
        past: costs of the period.
        month: costs of 730 hours at the pace of the period, with the same growth of storage.
    """

    topic: str
    requests: dict[RequestClass, int]
    uploaded_bytes: int
    downloaded_bytes: int
    stored_bytes: int
    past: Cost
    month: Cost


@dataclass(frozen=True, slots=True)
class CostReport:
    """Every topic, the dearest first, over ``hours`` hours from the first one that has a line."""

    currency: str
    hours: int
    topics: tuple[TopicCost, ...]

    @property
    def past(self) -> Cost:
        """Return the costs of the period."""
        return sum((topic.past for topic in self.topics), Cost())

    @property
    def month(self) -> Cost:
        """Return the expected costs of the month after the period."""
        return sum((topic.month for topic in self.topics), Cost())


class _Tally:
    """The lines of one topic."""

    def __init__(self) -> None:
        self.requests: dict[RequestClass, int] = defaultdict(int)
        self.moved: dict[RequestClass, int] = defaultdict(int)
        self.stored: dict[int, int] = {}

    def take(self, line: UsageLine) -> None:
        kind = is_request(line.operation)
        if kind is None:
            self.stored[line.hour_ms] = line.size_bytes
        else:
            self.requests[kind] += line.requests
            self.moved[kind] += line.size_bytes

    def hourly_stored(self, first_ms: int, hours: int) -> list[int]:
        """Return the bytes stored in each hour; an hour without a sample counts as the hour before, or as 0."""
        found, present = [], 0
        for hour_ms in range(first_ms, first_ms + hours * HOUR_MS, HOUR_MS):
            present = self.stored.get(hour_ms, present)
            found.append(present)
        return found


def cost_report(lines: Iterable[UsageLine], prices: PriceList, *, to_ms: int) -> CostReport:
    """Add up usage and price it.

    Args:
        lines: of the period.
        prices: of the store.
        to_ms: exclusive end of the period, which begins with the first hour that has a line.
    """
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    first_ms = to_ms
    for line in lines:
        tallies[line.topic].take(line)
        first_ms = min(first_ms, line.hour_ms)
    hours = max(1, -(-(to_ms - first_ms) // HOUR_MS)) if tallies else 0
    topics = [_topic_cost(topic, tally, prices, first_ms, hours) for topic, tally in tallies.items()]
    ordered = sorted(topics, key=lambda topic: (-topic.month.total, topic.topic))
    return CostReport(prices.currency, hours, tuple(ordered))


def _topic_cost(topic: str, tally: _Tally, prices: PriceList, first_ms: int, hours: int) -> TopicCost:
    stored = tally.hourly_stored(first_ms, hours)
    uploaded, downloaded = tally.moved[RequestClass.PUT], tally.moved[RequestClass.GET]
    requests = sum(prices.of_requests(kind, count) for kind, count in tally.requests.items())
    traffic = (uploaded * prices.per_gib.upload + downloaded * prices.per_gib.download) / GIB
    pace = HOURS_PER_MONTH / hours
    growth_per_hour = (stored[-1] - stored[0]) / hours
    mean_next_month = max(0.0, stored[-1] + growth_per_hour * HOURS_PER_MONTH / 2)
    return TopicCost(
        topic=topic,
        requests=dict(tally.requests),
        uploaded_bytes=uploaded,
        downloaded_bytes=downloaded,
        stored_bytes=stored[-1],
        past=Cost(_storage(sum(stored) / HOURS_PER_MONTH, prices), requests, traffic),
        month=Cost(_storage(mean_next_month, prices), requests * pace, traffic * pace),
    )


def _storage(byte_months: float, prices: PriceList) -> float:
    return byte_months / GIB * prices.storage_per_gib_month
