"""Values from which a scrape computes metrics at that moment, so that ages grow and lags stay right in a stall."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tierd.telemetry.catalogue_metrics import CATALOGUE_METRICS, CatalogueUse, catalogue_samples
from tierd.telemetry.control_metrics import CONTROL_METRICS, ControlUse, control_samples
from tierd.telemetry.declaration import Sample, counter, gauge, summary
from tierd.telemetry.drill_metrics import DRILL_METRICS, DrillUse, drill_samples
from tierd.telemetry.endpoint_metrics import ENDPOINT_METRICS, EndpointUse, endpoint_samples
from tierd.telemetry.host_metrics import HOST_METRICS, HostUse, host_samples
from tierd.telemetry.own_log_metrics import (
    LOG_CLEANER,
    OWN_LOGS,
    LogCleanerUse,
    OwnLogUse,
    log_cleaner_samples,
    own_log_samples,
)
from tierd.telemetry.pipeline_metrics import PIPELINE, PipelineUse, pipeline_samples
from tierd.telemetry.push_metrics import PUSH_METRICS, PushUse, UnprotectedUse, push_samples
from tierd.telemetry.reading_metrics import READING, ReadingUse, reading_samples

PARTITION_STATES = ("copying", "following", "idle", "loading", "paused", "quarantined", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """Lag of the tier behind one partition, and the size of that partition in the tier.

    Attributes:
        lag_segments: rolled segments that are due and not in the tier yet.
        lag_bytes: their sizes together.
        oldest_ms: wall clock since when the oldest of them waits; None when nothing waits.
        state: one of ``PARTITION_STATES``.
        metadata_count: metadata rows of the partition.
        remote_size_bytes: log bytes of those rows together.
        delete_lag_segments: remote segments that are due for deletion and still there.
        delete_lag_bytes: their log bytes together.
        in_grace_segments: remote segments that expired and can still be taken back.
        retained_segments: remote segments that are due for deletion and that the store keeps by its own lock.
    """

    topic: str
    partition: int
    lag_segments: int
    lag_bytes: int
    oldest_ms: int | None
    state: str = "idle"
    metadata_count: int = 0
    remote_size_bytes: int = 0
    delete_lag_segments: int = 0
    delete_lag_bytes: int = 0
    in_grace_segments: int = 0
    retained_segments: int = 0

    def age_s(self, now_ms: int) -> float:
        """Return the seconds since ``oldest_ms``; 0 when nothing waits or the clock stepped back."""
        return 0.0 if self.oldest_ms is None else max(0, now_ms - self.oldest_ms) / 1000


@dataclass(frozen=True, slots=True)
class HoldUsage:
    """Segments that tierd keeps although the broker may have deleted them; ``max_bytes`` is None without a limit."""

    segments: int = 0
    size_bytes: int = 0
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipUse:
    """State of the connection to the cluster's metadata.

    Attributes:
        last_refresh_s: Unix time of the last complete answer about every partition; None before the first.
        errors: rounds of questions that failed since start.
        stale_answers: answers since start that were older than what was known.
        leaderless: partitions that have no leader at present.
    """

    last_refresh_s: float | None
    errors: int
    stale_answers: int
    leaderless: int


@dataclass(frozen=True, slots=True)
class EngineUse:
    """Use of the task pools and quotas: by pool (copy, delete) its idle part, by quota (copy, fetch) its rate."""

    idle_ratio: Mapping[str, float] = field(default_factory=dict)
    bytes_per_second: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Latency:
    """Calls of one kind since start: their number and their total time."""

    count: int
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCounts:
    """Counts of the metadata manager since start; ``tombstones`` and ``dirty_partitions`` are as of now."""

    reloads: int = 0
    fenced_writes: int = 0
    unknown_outcomes: int = 0
    invalid_transitions: int = 0
    tombstones: int = 0
    dirty_partitions: int = 0
    follower_reads: int = 0
    follower_loads: int = 0
    backend: Mapping[str, Latency] = field(default_factory=dict)
    backend_errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ScrapeSources:
    """Functions that every scrape asks for the present state; none of them may block.

    Attributes:
        partitions: lags, ages and sizes.
        holds: the held segments.
        metadata: counts of the metadata manager.
        engine: idle part of the task pools, and rates of the quotas.
        leadership: the connection to brokers; None where none is asked.
        reading: reads and caches.
        pipeline: the Spark job; None where it is not enabled.
        log_cleaner: counts of the log cleaner; None where every log dir is a broker's.
        own_logs: each of tierd's own logs.
        catalogue: the work on the catalogue; None where it is not enabled.
        drills: None where there are none.
        endpoint: the read endpoint; None where it is off.
        control: the control plane; None where there is none.
        push: push replication; None where it is off.
        unprotected: the records that neither the tier nor a standby has.
        host: readiness, log dirs and the room on disks.
        unreachable_s: seconds since each service became unreachable; 0 while it answers.
    """

    partitions: Callable[[], Iterable[PartitionLag]] = tuple
    holds: Callable[[], HoldUsage] = HoldUsage
    metadata: Callable[[], MetadataCounts] = MetadataCounts
    engine: Callable[[], EngineUse] = EngineUse
    leadership: Callable[[], LeadershipUse | None] = lambda: None
    reading: Callable[[], ReadingUse] = ReadingUse
    pipeline: Callable[[], PipelineUse | None] = lambda: None
    log_cleaner: Callable[[], LogCleanerUse | None] = lambda: None
    own_logs: Callable[[], Iterable[OwnLogUse]] = tuple
    catalogue: Callable[[], CatalogueUse | None] = lambda: None
    drills: Callable[[], DrillUse | None] = lambda: None
    endpoint: Callable[[], EndpointUse | None] = lambda: None
    control: Callable[[], ControlUse | None] = lambda: None
    push: Callable[[], PushUse | None] = lambda: None
    unprotected: Callable[[], Sequence[UnprotectedUse]] = tuple
    host: Callable[[], HostUse | None] = lambda: None
    unreachable_s: Callable[[], Mapping[str, float]] = dict


_PARTITION = ("topic", "partition")

SCRAPED = (
    gauge("tierd_remote_copy_lag_bytes", "Bytes of rolled segments that are not in the tier.", _PARTITION),
    gauge("tierd_remote_copy_lag_segments", "Rolled segments that are not in the tier.", _PARTITION),
    gauge(
        "tierd_remote_copy_lag_seconds",
        "Age of the oldest byte that is due and not in the tier; 0 if none is due; grows while work stalls.",
        _PARTITION,
    ),
    gauge("tierd_remote_copy_lag_max_bytes", "The largest tierd_remote_copy_lag_bytes."),
    gauge("tierd_remote_copy_lag_max_segments", "The largest tierd_remote_copy_lag_segments."),
    gauge("tierd_remote_copy_lag_max_seconds", "The largest tierd_remote_copy_lag_seconds."),
    gauge("tierd_remote_log_metadata_count", "Metadata rows of the partition.", _PARTITION),
    gauge("tierd_remote_log_size_bytes", "Log bytes of the partition in the tier.", _PARTITION),
    gauge("tierd_remote_delete_lag_bytes", "Bytes of remote segments that tierd is to delete.", _PARTITION),
    gauge("tierd_remote_delete_lag_segments", "Remote segments that tierd is to delete.", _PARTITION),
    gauge("tierd_remote_grace_segments", "Expired remote segments that can still be taken back.", _PARTITION),
    gauge(
        "tierd_remote_retained_segments",
        "Remote segments that the store refuses to delete: Object Lock, retention or legal hold.",
        _PARTITION,
    ),
    gauge(
        "tierd_remote_log_manager_tasks_idle_ratio",
        "Share of the copy or delete slots that is not in use, from 0 to 1.",
        ("pool",),
    ),
    gauge(
        "tierd_leadership_last_refresh_timestamp_seconds",
        "Unix time of the last answer with the leaders of all partitions; only with leadership.source kafka.",
    ),
    counter("tierd_leadership_errors_total", "Failed requests to the cluster for the leaders."),
    counter("tierd_leadership_stale_answers_total", "Answers about leaders that were older than an earlier answer."),
    gauge("tierd_leadership_leaderless_partitions", "Partitions that have no leader now."),
    gauge("tierd_remote_quota_bytes_per_second", "Rate that a quota measures over its windows.", ("quota",)),
    gauge("tierd_partitions", "Partitions of this broker, by state.", ("state",)),
    gauge(
        "tierd_quarantined_partitions", "Partitions that are quarantined after a failure; tierd status has the errors."
    ),
    gauge("tierd_hold_bytes", "Bytes of segments that tierd holds until they are copied."),
    gauge("tierd_hold_segments", "Segments that tierd holds until they are copied."),
    gauge("tierd_hold_max_bytes", "The limit hold.max_bytes; no series without a limit."),
    summary("tierd_metadata_backend_seconds", "Calls to the metadata store, and their time.", ("operation",)),
    counter("tierd_metadata_backend_errors_total", "Failed calls to the metadata store.", ("operation",)),
    counter(
        "tierd_metadata_reloads_total",
        "Partitions whose metadata was loaded again after a write with an unknown outcome.",
    ),
    counter(
        "tierd_metadata_fenced_writes_total",
        "Writes that the metadata store refused because a newer leader owns the row.",
    ),
    counter("tierd_metadata_unknown_outcomes_total", "Writes to the metadata store that may or may not have happened."),
    gauge("tierd_metadata_dirty_partitions", "Partitions whose metadata must be loaded again before the next use."),
    counter("tierd_metadata_follower_reads_total", "Reads of followed partitions in the metadata store."),
    counter("tierd_metadata_follower_loads_total", "Loads of followed partitions whose metadata had changed."),
    gauge("tierd_metadata_tombstones", "Rows of deleted segments, which stay for metadata.tombstone_retention."),
    counter(
        "tierd_invalid_transitions_total", "Refused steps that the segment lifecycle does not have; each is a bug."
    ),
    *READING,
    *PIPELINE,
    *LOG_CLEANER,
    *OWN_LOGS,
    *CATALOGUE_METRICS,
    *DRILL_METRICS,
    *ENDPOINT_METRICS,
    *CONTROL_METRICS,
    *PUSH_METRICS,
    *HOST_METRICS,
    gauge(
        "tierd_service_unreachable_seconds",
        "Seconds since the service (object_store, metadata_store, kafka) stopped answering; 0 while it answers.",
        ("service",),
    ),
)


def scrape(sources: ScrapeSources, *, now_ms: int, metadata: MetadataCounts, push: PushUse | None) -> Iterator[Sample]:
    """Yield the samples of ``SCRAPED`` for the present state, without summaries and histograms.

    Args:
        sources: asked, for everything but what follows.
        now_ms: wall clock.
        metadata: the answer of that source, of which the summaries are made too.
        push: the answer of that source, of which the histograms are made too.
    """
    yield from _partition_samples(now_ms, tuple(sources.partitions()))
    holds = sources.holds()
    yield "tierd_hold_bytes", (), holds.size_bytes
    yield "tierd_hold_segments", (), holds.segments
    if holds.max_bytes is not None:
        yield "tierd_hold_max_bytes", (), holds.max_bytes
    yield "tierd_metadata_reloads_total", (), metadata.reloads
    yield "tierd_metadata_fenced_writes_total", (), metadata.fenced_writes
    yield "tierd_metadata_unknown_outcomes_total", (), metadata.unknown_outcomes
    yield "tierd_metadata_dirty_partitions", (), metadata.dirty_partitions
    yield "tierd_metadata_follower_reads_total", (), metadata.follower_reads
    yield "tierd_metadata_follower_loads_total", (), metadata.follower_loads
    yield "tierd_metadata_tombstones", (), metadata.tombstones
    yield "tierd_invalid_transitions_total", (), metadata.invalid_transitions
    for operation, count in sorted(metadata.backend_errors.items()):
        yield "tierd_metadata_backend_errors_total", (operation,), count
    if (leadership := sources.leadership()) is not None:
        yield from _leadership_samples(leadership)
    engine = sources.engine()
    for pool, ratio in sorted(engine.idle_ratio.items()):
        yield "tierd_remote_log_manager_tasks_idle_ratio", (pool,), ratio
    for quota, rate in sorted(engine.bytes_per_second.items()):
        yield "tierd_remote_quota_bytes_per_second", (quota,), rate
    reading = sources.reading()
    if reading.bytes_per_second is not None:
        yield "tierd_remote_quota_bytes_per_second", ("fetch",), reading.bytes_per_second
    yield from reading_samples(reading)
    if (pipeline := sources.pipeline()) is not None:
        yield from pipeline_samples(pipeline)
    if (log_cleaner := sources.log_cleaner()) is not None:
        yield from log_cleaner_samples(log_cleaner)
    yield from own_log_samples(sources.own_logs())
    if (catalogue := sources.catalogue()) is not None:
        yield from catalogue_samples(catalogue)
    if (drills := sources.drills()) is not None:
        yield from drill_samples(drills)
    if (endpoint := sources.endpoint()) is not None:
        yield from endpoint_samples(endpoint)
    if (control := sources.control()) is not None:
        yield from control_samples(control)
    yield from push_samples(push, sources.unprotected())
    if (host := sources.host()) is not None:
        yield from host_samples(host)
    for service, seconds in sorted(sources.unreachable_s().items()):
        yield "tierd_service_unreachable_seconds", (service,), seconds


def _leadership_samples(leadership: LeadershipUse) -> Iterator[Sample]:
    if leadership.last_refresh_s is not None:
        yield "tierd_leadership_last_refresh_timestamp_seconds", (), leadership.last_refresh_s
    yield "tierd_leadership_errors_total", (), leadership.errors
    yield "tierd_leadership_stale_answers_total", (), leadership.stale_answers
    yield "tierd_leadership_leaderless_partitions", (), leadership.leaderless


def _partition_samples(now_ms: int, partitions: tuple[PartitionLag, ...]) -> Iterator[Sample]:
    states = dict.fromkeys(PARTITION_STATES, 0)
    for lag in partitions:
        labels = (lag.topic, str(lag.partition))
        yield "tierd_remote_copy_lag_bytes", labels, lag.lag_bytes
        yield "tierd_remote_copy_lag_segments", labels, lag.lag_segments
        yield "tierd_remote_copy_lag_seconds", labels, lag.age_s(now_ms)
        yield "tierd_remote_log_metadata_count", labels, lag.metadata_count
        yield "tierd_remote_log_size_bytes", labels, lag.remote_size_bytes
        yield "tierd_remote_delete_lag_bytes", labels, lag.delete_lag_bytes
        yield "tierd_remote_delete_lag_segments", labels, lag.delete_lag_segments
        yield "tierd_remote_grace_segments", labels, lag.in_grace_segments
        yield "tierd_remote_retained_segments", labels, lag.retained_segments
        states[lag.state] = states.get(lag.state, 0) + 1
    yield "tierd_remote_copy_lag_max_bytes", (), max((lag.lag_bytes for lag in partitions), default=0)
    yield "tierd_remote_copy_lag_max_segments", (), max((lag.lag_segments for lag in partitions), default=0)
    yield "tierd_remote_copy_lag_max_seconds", (), max((lag.age_s(now_ms) for lag in partitions), default=0)
    yield "tierd_quarantined_partitions", (), states["quarantined"]
    for state, count in states.items():
        yield "tierd_partitions", (state,), count
