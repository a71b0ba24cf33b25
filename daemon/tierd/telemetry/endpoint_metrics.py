"""Metrics of the read endpoint: requests as they end, and the state of listeners and groups at each scrape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tierd.telemetry.declaration import Sample, counter, gauge, histogram

ENDPOINT_REQUESTS = counter(
    "tierd_endpoint_requests_total",
    "Requests of clients at the read endpoint, by Kafka's name of the request and by outcome.",
    ("listener", "request", "outcome"),
)
ENDPOINT_SECONDS = histogram(
    "tierd_endpoint_request_seconds",
    "Time of requests at the read endpoint, without the wait of a Fetch for records.",
    ("request",),
)
ENDPOINT_PRINCIPAL_BYTES = counter(
    "tierd_endpoint_principal_bytes_total",
    "Bytes of the answers to each principal; principals beyond the first 50 are one series, other.",
    ("principal",),
)
ENDPOINT_RECORDED = (ENDPOINT_REQUESTS, ENDPOINT_SECONDS, ENDPOINT_PRINCIPAL_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointListenerUse:
    """Use of one listener: ``connections`` now, everything else since the start."""

    connections: int = 0
    accepted: int = 0
    closed_by_fault: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSessionUse:
    """Fetch sessions (KIP-227) of the read endpoint: ``evictions`` counts since the start."""

    sessions: int = 0
    partitions: int = 0
    evictions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointUse:
    """State of the read endpoint.

    Attributes:
        listeners: by name.
        refused: connections that found no place, since the start.
        memory_bytes: by kind, ``requests`` and ``answers``.
        waiting_answers: answers that wait for memory.
        failed_logins: since the start.
        failed_certificates: changed certificates that could not be used, since the start.
        fetch_sessions: of all clients.
        topics: that are served.
        groups: consumer groups that this endpoint coordinates.
        members: of these groups.
        commits: offsets that were committed since the start.
        watermark_age_s: age of the high watermarks that are served; None where it is not known.
    """

    listeners: Mapping[str, EndpointListenerUse] = field(default_factory=dict)
    refused: int = 0
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    waiting_answers: int = 0
    failed_logins: int = 0
    failed_certificates: int = 0
    fetch_sessions: EndpointSessionUse = EndpointSessionUse()
    topics: int = 0
    groups: int = 0
    members: int = 0
    commits: int = 0
    watermark_age_s: float | None = None


_LISTENER = ("listener",)

ENDPOINT_METRICS = (
    gauge("tierd_endpoint_connections", "Connections of clients at the read endpoint.", _LISTENER),
    counter("tierd_endpoint_connections_accepted_total", "Connections that a listener accepted.", _LISTENER),
    counter(
        "tierd_endpoint_connections_faulty_total",
        "Connections that were closed for a fault of the client: no Kafka protocol, a failed login, a request that is "
        "not allowed.",
        _LISTENER,
    ),
    counter(
        "tierd_endpoint_connections_refused_total",
        "Connections that found no place (kafka.max_connections, or descriptors).",
    ),
    counter("tierd_endpoint_received_bytes_total", "Bytes of requests.", _LISTENER),
    counter("tierd_endpoint_sent_bytes_total", "Bytes of answers.", _LISTENER),
    gauge(
        "tierd_endpoint_memory_bytes",
        "Memory of requests and answers, which kafka.max_memory bounds together.",
        ("kind",),
    ),
    gauge("tierd_endpoint_answers_waiting", "Answers that wait for memory."),
    counter("tierd_endpoint_failed_logins_total", "Logins of clients that failed."),
    counter(
        "tierd_endpoint_failed_certificates_total",
        "Changed certificates of the listeners that could not be used; the former ones stay in force.",
    ),
    gauge("tierd_endpoint_fetch_sessions", "Fetch sessions of clients (KIP-227)."),
    gauge("tierd_endpoint_fetch_session_partitions", "Partitions of all fetch sessions."),
    counter(
        "tierd_endpoint_fetch_session_evictions_total",
        "Fetch sessions that made room for others; their clients name all partitions in each request.",
    ),
    gauge("tierd_endpoint_topics", "Topics that the read endpoint serves."),
    gauge("tierd_endpoint_groups", "Consumer groups that this endpoint coordinates."),
    gauge("tierd_endpoint_group_members", "Members of the groups that this endpoint coordinates."),
    counter("tierd_endpoint_commits_total", "Offsets that consumers committed here."),
    gauge(
        "tierd_endpoint_watermark_age_seconds",
        "Age of the high watermarks up to which local records are served; no series while none is in use.",
    ),
)


def endpoint_samples(use: EndpointUse) -> Iterator[Sample]:
    """Yield the samples of ``ENDPOINT_METRICS``."""
    for name, listener in sorted(use.listeners.items()):
        yield "tierd_endpoint_connections", (name,), listener.connections
        yield "tierd_endpoint_connections_accepted_total", (name,), listener.accepted
        yield "tierd_endpoint_connections_faulty_total", (name,), listener.closed_by_fault
        yield "tierd_endpoint_received_bytes_total", (name,), listener.received_bytes
        yield "tierd_endpoint_sent_bytes_total", (name,), listener.sent_bytes
    yield "tierd_endpoint_connections_refused_total", (), use.refused
    for kind, size_bytes in sorted(use.memory_bytes.items()):
        yield "tierd_endpoint_memory_bytes", (kind,), size_bytes
    yield "tierd_endpoint_answers_waiting", (), use.waiting_answers
    yield "tierd_endpoint_failed_logins_total", (), use.failed_logins
    yield "tierd_endpoint_failed_certificates_total", (), use.failed_certificates
    yield "tierd_endpoint_fetch_sessions", (), use.fetch_sessions.sessions
    yield "tierd_endpoint_fetch_session_partitions", (), use.fetch_sessions.partitions
    yield "tierd_endpoint_fetch_session_evictions_total", (), use.fetch_sessions.evictions
    yield "tierd_endpoint_topics", (), use.topics
    yield "tierd_endpoint_groups", (), use.groups
    yield "tierd_endpoint_group_members", (), use.members
    yield "tierd_endpoint_commits_total", (), use.commits
    if use.watermark_age_s is not None:
        yield "tierd_endpoint_watermark_age_seconds", (), use.watermark_age_s
