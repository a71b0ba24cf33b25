"""Metrics of push replication, at each scrape (push-replication 6). The names are Confluent's, with units last."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import HistogramMetricFamily

from tierd.telemetry.declaration import Sample, counter, gauge, histogram


@dataclass(frozen=True, slots=True)
class HistogramUse:
    """Observations by size.

    Attributes:
        bounds: inclusive upper bounds, ascending.
        counts: of each bound, not cumulative; one more for what is above the last bound.
        total: sum of all observations.
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyLagUse:
    """Lag of one standby of one led partition."""

    topic: str
    partition: int
    node_id: int
    records: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPeerUse:
    """State of the sessions towards one standby."""

    node_id: int
    sessions: int
    oldest_unacked_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PushLeaderUse:
    """State of the leader's side, with counts since the start.

    Attributes:
        session_ends: by reason.
        retries: by error of the answer.
        queue_depths: by pusher.
        unread_partitions: partitions that are to be sent and cannot be read, or not to their end.
        tail_bytes, tail_cpu_s: cost of tail mode.
    """

    memory_bytes: int
    memory_max_bytes: int
    stopping_sessions: int
    session_starts: int
    session_ends: Mapping[str, int]
    failed_callbacks: int
    awaiting_transition: int
    retries: Mapping[str, int]
    resyncs: int
    soft_limit_hits: int
    queue_depths: Sequence[int]
    peers: Sequence[PushPeerUse]
    lags: Sequence[StandbyLagUse]
    request_bytes: HistogramUse
    request_partitions: HistogramUse
    request_seconds: HistogramUse
    processing_seconds: HistogramUse
    tail_partitions: int
    tail_watched: int
    unread_partitions: int
    tail_bytes: int
    tail_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PushCopyUse:
    """Lag of one copy; ``lag_records`` is None while the end of its leader is not known."""

    topic: str
    partition: int
    lag_records: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushStandbyUse:
    """State of the standby's side, with counts since the start; ``append_errors`` by error."""

    partitions: int
    pushed_partitions: int
    pull_transitions: int
    append_errors: Mapping[str, int]
    duplicate_appends: int
    appended_bytes: int
    fetched_bytes: int
    truncated_records: int
    truncations_below_high_watermark: int
    memory_bytes: int
    copies: Sequence[PushCopyUse]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushUse:
    """State of push replication; ``standby`` is None where no copies are kept."""

    connections: int
    refused_connections: int
    leader: PushLeaderUse
    standby: PushStandbyUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnprotectedUse:
    """Cost of a loss of this host now, for one partition: the records that neither the tier nor a standby has."""

    topic: str
    partition: int
    seconds: float
    size_bytes: int


_PARTITION = ("topic", "partition")
_PARTITION_PEER = (*_PARTITION, "peer")

_HISTOGRAMS = (
    histogram("tierd_push_request_bytes", "Record bytes of a request to a standby."),
    histogram("tierd_push_request_partitions", "Partitions of a request to a standby."),
    histogram("tierd_push_request_seconds", "Time from a request to the answer of the standby."),
    histogram("tierd_push_event_processing_seconds", "Time of one turn of a pusher."),
)

PUSH_METRICS = (
    gauge("tierd_push_memory_used_bytes", "Records that are queued for standbys or on their way."),
    gauge("tierd_push_memory_max_bytes", "Most records that may be queued or on their way."),
    gauge("tierd_push_stopping_sessions", "Ended sessions whose standby was not told yet."),
    counter("tierd_push_transitions_total", "Sessions that began: from pull to push."),
    counter("tierd_push_session_ends_total", "Sessions that ended, by reason.", ("reason",)),
    counter("tierd_push_event_failures_total", "Events of sessions that failed; each is a bug."),
    counter(
        "tierd_push_awaiting_transition_total",
        "Fetches of standbys that lack nothing for a session but the newest records.",
    ),
    counter("tierd_push_retries_total", "Requests that are repeated, by error.", ("reason",)),
    counter("tierd_push_resyncs_total", "Sessions that went on at the log end of the standby."),
    counter("tierd_push_soft_limit_hits_total", "Times that the memory rose above three quarters."),
    gauge("tierd_push_queue_depth", "Sessions that wait for their turn, by pusher.", ("pusher",)),
    gauge("tierd_push_active_sessions", "Sessions towards a standby.", ("peer",)),
    gauge("tierd_push_oldest_unacked_seconds", "Age of the oldest append that a standby lacks.", ("peer",)),
    gauge("tierd_push_lag_records", "Offsets that a standby of a led partition lacks.", _PARTITION_PEER),
    gauge("tierd_push_lag_bytes", "Bytes that a standby of a led partition lacks.", _PARTITION_PEER),
    gauge(
        "tierd_push_lag_seconds",
        "Time since a standby of a led partition last lacked nothing; 0 while it lacks nothing.",
        _PARTITION_PEER,
    ),
    gauge("tierd_push_tail_partitions", "Partitions of a broker that tail mode follows."),
    gauge(
        "tierd_push_tail_watched_partitions",
        "Partitions of which the kernel reports growth; tail mode polls the others.",
    ),
    gauge("tierd_push_unread_partitions", "Partitions that are to be sent and cannot be read, or not to their end."),
    counter("tierd_push_tail_bytes_total", "Record bytes that tail mode read."),
    counter("tierd_push_tail_cpu_seconds_total", "CPU time of tail mode."),
    gauge("tierd_push_connections", "Connections of other daemons to push.listen."),
    counter("tierd_push_refused_connections_total", "Connections that ended for a fault of the other side."),
    gauge("tierd_push_partitions", "Copies on this host: push or pull.", ("state",)),
    counter("tierd_push_pull_transitions_total", "Sessions of copies that ended: from push to pull."),
    counter("tierd_push_append_errors_total", "Answers with an error, by error.", ("reason",)),
    counter("tierd_push_duplicate_appends_total", "Appends that a copy had already."),
    counter("tierd_push_appended_bytes_total", "Record bytes that leaders pushed to this host."),
    counter("tierd_push_fetched_bytes_total", "Record bytes that this host fetched from leaders."),
    counter("tierd_push_truncated_records_total", "Offsets that truncations removed from copies."),
    counter("tierd_push_truncations_below_high_watermark_total", "Truncations of copies below their high watermark."),
    gauge("tierd_push_standby_memory_bytes", "Records of leaders that wait for the disk."),
    gauge("tierd_push_copy_lag_records", "Offsets that a copy on this host lacks.", _PARTITION),
    gauge(
        "tierd_unprotected_seconds",
        "Age of the oldest record of a led partition that neither the tier nor a standby has; 0 without one.",
        _PARTITION,
    ),
    gauge(
        "tierd_unprotected_bytes",
        "Bytes of a led partition that neither the tier nor a standby has: what a loss of this host now would cost.",
        _PARTITION,
    ),
    gauge("tierd_unprotected_max_seconds", "The largest tierd_unprotected_seconds."),
    gauge("tierd_unprotected_max_bytes", "The largest tierd_unprotected_bytes."),
    *_HISTOGRAMS,
)


def push_samples(push: PushUse | None, unprotected: Sequence[UnprotectedUse]) -> Iterator[Sample]:
    """Return the samples of ``PUSH_METRICS``, without the histograms; ``push`` is None where it is off."""
    for each in unprotected:
        labels = (each.topic, str(each.partition))
        yield "tierd_unprotected_seconds", labels, each.seconds
        yield "tierd_unprotected_bytes", labels, each.size_bytes
    yield "tierd_unprotected_max_seconds", (), max((each.seconds for each in unprotected), default=0)
    yield "tierd_unprotected_max_bytes", (), max((each.size_bytes for each in unprotected), default=0)
    if push is None:
        return
    yield "tierd_push_connections", (), push.connections
    yield "tierd_push_refused_connections_total", (), push.refused_connections
    yield from _leader_samples(push.leader)
    if push.standby is not None:
        yield from _standby_samples(push.standby)


def push_histograms(use: PushUse | None) -> Iterator[HistogramMetricFamily]:
    """Return the histograms; empty ones where push replication is off."""
    observed = (
        ()
        if use is None
        else (
            use.leader.request_bytes,
            use.leader.request_partitions,
            use.leader.request_seconds,
            use.leader.processing_seconds,
        )
    )
    families = [HistogramMetricFamily(each.name, each.help) for each in _HISTOGRAMS]
    for family, seen in zip(families, observed, strict=False):
        family.add_metric((), list(_cumulative(seen)), seen.total)
    yield from families


def _cumulative(seen: HistogramUse) -> Iterator[tuple[str, float]]:
    count = 0
    for bound, more in zip((*map(str, seen.bounds), "+Inf"), seen.counts, strict=True):
        count += more
        yield bound, count


def _leader_samples(use: PushLeaderUse) -> Iterator[Sample]:
    yield "tierd_push_memory_used_bytes", (), use.memory_bytes
    yield "tierd_push_memory_max_bytes", (), use.memory_max_bytes
    yield "tierd_push_stopping_sessions", (), use.stopping_sessions
    yield "tierd_push_transitions_total", (), use.session_starts
    for reason, count in sorted(use.session_ends.items()):
        yield "tierd_push_session_ends_total", (reason,), count
    yield "tierd_push_event_failures_total", (), use.failed_callbacks
    yield "tierd_push_awaiting_transition_total", (), use.awaiting_transition
    for error, count in sorted(use.retries.items()):
        yield "tierd_push_retries_total", (error,), count
    yield "tierd_push_resyncs_total", (), use.resyncs
    yield "tierd_push_soft_limit_hits_total", (), use.soft_limit_hits
    for pusher, depth in enumerate(use.queue_depths):
        yield "tierd_push_queue_depth", (str(pusher),), depth
    for peer in use.peers:
        yield "tierd_push_active_sessions", (str(peer.node_id),), peer.sessions
        yield "tierd_push_oldest_unacked_seconds", (str(peer.node_id),), peer.oldest_unacked_s
    for lag in use.lags:
        labels = (lag.topic, str(lag.partition), str(lag.node_id))
        yield "tierd_push_lag_records", labels, lag.records
        yield "tierd_push_lag_bytes", labels, lag.size_bytes
        yield "tierd_push_lag_seconds", labels, lag.seconds
    yield "tierd_push_tail_partitions", (), use.tail_partitions
    yield "tierd_push_tail_watched_partitions", (), use.tail_watched
    yield "tierd_push_unread_partitions", (), use.unread_partitions
    yield "tierd_push_tail_bytes_total", (), use.tail_bytes
    yield "tierd_push_tail_cpu_seconds_total", (), use.tail_cpu_s


def _standby_samples(use: PushStandbyUse) -> Iterator[Sample]:
    yield "tierd_push_partitions", ("push",), use.pushed_partitions
    yield "tierd_push_partitions", ("pull",), use.partitions - use.pushed_partitions
    yield "tierd_push_pull_transitions_total", (), use.pull_transitions
    for error, count in sorted(use.append_errors.items()):
        yield "tierd_push_append_errors_total", (error,), count
    yield "tierd_push_duplicate_appends_total", (), use.duplicate_appends
    yield "tierd_push_appended_bytes_total", (), use.appended_bytes
    yield "tierd_push_fetched_bytes_total", (), use.fetched_bytes
    yield "tierd_push_truncated_records_total", (), use.truncated_records
    yield "tierd_push_truncations_below_high_watermark_total", (), use.truncations_below_high_watermark
    yield "tierd_push_standby_memory_bytes", (), use.memory_bytes
    for copy in use.copies:
        if copy.lag_records is not None:
            yield "tierd_push_copy_lag_records", (copy.topic, str(copy.partition)), copy.lag_records
