"""Declaration of a metric, everything apart from its value, and one value of it at a scrape."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Kind of a metric, as Prometheus has it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One metric under the name that ``/metrics`` shows; its unit ends the name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


Sample = tuple[str, tuple[str, ...], float]
"""Metric name, label values, value."""


def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Declaration:
    """Declare a counter."""
    return Declaration(name, Kind.COUNTER, text, labels)


def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Declaration:
    """Declare a gauge."""
    return Declaration(name, Kind.GAUGE, text, labels)


def histogram(name: str, text: str, labels: tuple[str, ...] = ()) -> Declaration:
    """Declare a histogram."""
    return Declaration(name, Kind.HISTOGRAM, text, labels)


def summary(name: str, text: str, labels: tuple[str, ...] = ()) -> Declaration:
    """Declare a summary."""
    return Declaration(name, Kind.SUMMARY, text, labels)
