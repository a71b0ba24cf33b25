"""Declaration of a metric: everything apart from its value."""

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
