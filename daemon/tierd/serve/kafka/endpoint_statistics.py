"""Statistics of the endpoint: one record of each request, and counters of each listener."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class RequestOutcome(StrEnum):
    """End of one request."""

    ANSWERED = "answered"
    ERROR = "error"  # the answer as a whole says an error; errors of single topics or partitions count as answered
    FAILED = "failed"  # no answer, and the connection was closed
    ABANDONED = "abandoned"  # the client went away before it had the whole answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request at its end. Times are seconds.

    Attributes:
        api: Kafka's name of the request.
        handled_s: from the whole request to its answer.
        waited_s: part of ``handled_s`` in which the answer waited for records.
        sent_s: from the answer until the client has taken it, as far as the socket shows.
    """

    listener: str
    api: str
    version: int
    principal: str
    client_id: str
    peer: str
    outcome: RequestOutcome
    request_bytes: int
    answer_bytes: int
    handled_s: float
    waited_s: float
    sent_s: float

    @property
    def busy_s(self) -> float:
        """Return the time of the request without its wait for records."""
        return self.handled_s - self.waited_s + self.sent_s


class EndpointRecorder(Protocol):
    """Takes the record of every request, such as for metrics. Calls return at once."""

    def record(self, request: RequestRecord) -> None:
        """Take one record."""


@dataclass(slots=True)
class ListenerCounters:
    """Counters of one listener since the start, which its connections move."""

    connections: int = 0  # now
    accepted: int = 0
    closed_by_fault: int = 0  # of the client: no Kafka protocol, a login that failed, or a request that is not allowed
    received_bytes: int = 0
    sent_bytes: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[RequestOutcome] = field(default_factory=Counter)

    def record(self, request: RequestRecord) -> None:
        """Count one request."""
        self.requests[request.api] += 1
        self.outcomes[request.outcome] += 1
        self.received_bytes += request.request_bytes

    def statistics(self, name: str) -> "ListenerStatistics":
        """Return the counters now."""
        return ListenerStatistics(
            name=name,
            connections=self.connections,
            accepted=self.accepted,
            closed_by_fault=self.closed_by_fault,
            received_bytes=self.received_bytes,
            sent_bytes=self.sent_bytes,
            requests=dict(self.requests),
            outcomes=dict(self.outcomes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerStatistics:
    """State of one listener: ``connections`` now, everything else since the start.

    Attributes:
        closed_by_fault: connections that were closed for a fault of the client: bytes that are not Kafka's protocol, a
            login that failed, or a request that was not allowed.
        requests: by Kafka's name of the request.
    """

    name: str
    connections: int
    accepted: int
    closed_by_fault: int
    received_bytes: int
    sent_bytes: int
    requests: Mapping[str, int]
    outcomes: Mapping[RequestOutcome, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStatistics:
    """State of the endpoint.

    Attributes:
        refused: connections that found no place, since the start.
        request_bytes: memory of the requests that are being read or answered now.
        answer_bytes: memory of the answers that are being made or sent now.
        waiting_answers: answers that wait for memory now.
    """

    listeners: tuple[ListenerStatistics, ...]
    refused: int
    request_bytes: int
    answer_bytes: int
    waiting_answers: int
