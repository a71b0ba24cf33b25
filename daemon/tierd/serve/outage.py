"""Outage: a service that the daemon needs and that does not answer."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

Service = Literal["object_store", "metadata_store", "kafka"]

_NAMES: dict[Service, str] = {
    "object_store": "object store",
    "metadata_store": "metadata store",
    "kafka": "Kafka",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An unreachable service.

    Attributes:
        since_ms: wall clock of the first call that failed after the last answer.
        problem: why the latest call failed, in one line.
        remedy: the next step of the operator; may be empty.
    """

    service: Service
    since_ms: int
    problem: str
    remedy: str = ""

    def headline(self) -> str:
        """Return the first line for an operator: which service, since when, and why."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{_NAMES[self.service]} unreachable since {since}: {self.problem}"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the object of the outage in ``/status``."""
        return {"service": self.service, "since_ms": self.since_ms, "problem": self.problem, "remedy": self.remedy}
