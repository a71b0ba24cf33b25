"""Metrics: the counters and timings that the daemon records, each declared once, and the scrape of all metrics.

Kafka's names in snake case behind ``tierd_``, units last. Counters and timings are recorded by shells as things happen;
values of a state (lag, age, holds) are asked for at each scrape, so that they stay right while all work stalls.
"""

import platform
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from tierd.clock import Clock
from tierd.telemetry.declaration import Declaration, Kind, counter, gauge, histogram
from tierd.telemetry.endpoint_metrics import (
    ENDPOINT_PRINCIPAL_BYTES,
    ENDPOINT_RECORDED,
    ENDPOINT_REQUESTS,
    ENDPOINT_SECONDS,
)
from tierd.telemetry.push_metrics import push_histograms
from tierd.telemetry.scraped import SCRAPED, MetadataCounts, ScrapeSources, scrape
from tierd.telemetry.store_restore_metrics import STORE_RESTORE, StoreRestoreUse, store_restore_samples

_BUCKETS_S = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)

COPY_BYTES = counter("tierd_remote_copy_bytes_total", "Log bytes of finished copies.", ("topic",))
COPY_REQUESTS = counter("tierd_remote_copy_requests_total", "Copies of segments that tierd began.", ("topic",))
COPY_ERRORS = counter("tierd_remote_copy_errors_total", "Copies of segments that failed.", ("topic",))
COPY_SECONDS = histogram(
    "tierd_remote_copy_seconds", "Time of a finished copy, from the check of the segment to its last durable row."
)
GAP_OFFSETS = counter(
    "tierd_gap_offsets_total",
    "Offsets that the broker deleted before tierd copied or held them; the tier does not have them.",
    ("topic",),
)
FETCH_BYTES = counter("tierd_remote_fetch_bytes_total", "Bytes that readers got from the tier.", ("topic",))
FETCH_REQUESTS = counter("tierd_remote_fetch_requests_total", "Reads from the tier.", ("topic",))
FETCH_ERRORS = counter(
    "tierd_remote_fetch_errors_total", "Failed reads from the tier, without reads of offsets out of range.", ("topic",)
)
DELETE_REQUESTS = counter(
    "tierd_remote_delete_requests_total", "Deletions of remote segments that tierd began.", ("topic",)
)
DELETE_ERRORS = counter("tierd_remote_delete_errors_total", "Deletions of remote segments that failed.", ("topic",))
DANGLING_SWEPT = counter(
    "tierd_dangling_segments_swept_total", "Unfinished copies of dead processes that tierd removed.", ("topic",)
)
UPLOADS_ABORTED = counter(
    "tierd_uploads_aborted_total", "Unfinished multipart uploads of dead processes that tierd aborted."
)
SIZE_COMPUTATION_SECONDS = histogram(
    "tierd_remote_log_size_computation_seconds",
    "Time to find the expired segments of a partition, with the computation of its size.",
)
STORE_SECONDS = histogram("tierd_object_store_seconds", "Time of calls to the object store.", ("operation",))
STORE_REQUESTS = counter(
    "tierd_object_store_requests_total", "Calls to the object store, by outcome.", ("operation", "outcome")
)
STORE_ATTEMPTS = counter(
    "tierd_object_store_attempts_total",
    "Attempts of calls to the object store and of parts of uploads, with repetitions, by outcome.",
    ("operation", "outcome"),
)
STORE_BYTES = counter(
    "tierd_object_store_bytes_total", "Bytes sent to or received from the object store.", ("operation",)
)
BILLED_REQUESTS = counter(
    "tierd_billed_requests_total",
    "Requests that the store bills, with failed attempts, computed from the calls; tierd cost uses them.",
    ("topic", "request_class"),
)
BILLED_BYTES = counter("tierd_billed_bytes_total", "Bytes that the billed requests moved.", ("topic", "request_class"))
LAST_SUCCESS = gauge(
    "tierd_last_success_timestamp_seconds", "Unix time of the last success of a task of this kind.", ("task",)
)
THROTTLE_SECONDS = histogram(
    "tierd_remote_throttle_seconds",
    "Waits because of a quota, copy or fetch; there is no series before the first wait.",
    ("quota",),
)
THROTTLE_MAX_SECONDS = gauge(
    "tierd_remote_throttle_max_seconds",
    "Longest wait because of a quota since the start; there is no series before the first wait.",
    ("quota",),
)
RELOAD_SUCCESS = gauge(
    "tierd_config_reload_success",
    "1 if the last read of the configuration file succeeded, 0 if a reload kept the old settings.",
)
BUILD_INFO = gauge(
    "tierd_build_info", "Always 1; the labels have the version of tierd and of Python.", ("version", "python")
)

RECORDED = (
    COPY_BYTES,
    COPY_REQUESTS,
    COPY_ERRORS,
    COPY_SECONDS,
    GAP_OFFSETS,
    FETCH_BYTES,
    FETCH_REQUESTS,
    FETCH_ERRORS,
    DELETE_REQUESTS,
    DELETE_ERRORS,
    DANGLING_SWEPT,
    UPLOADS_ABORTED,
    SIZE_COMPUTATION_SECONDS,
    STORE_SECONDS,
    STORE_REQUESTS,
    STORE_ATTEMPTS,
    STORE_BYTES,
    BILLED_REQUESTS,
    BILLED_BYTES,
    LAST_SUCCESS,
    THROTTLE_SECONDS,
    THROTTLE_MAX_SECONDS,
    RELOAD_SUCCESS,
    BUILD_INFO,
    *ENDPOINT_RECORDED,
)
DECLARATIONS = (*RECORDED, *SCRAPED, *STORE_RESTORE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTotals:
    """Work since the start of the daemon, of the topics that it has; each number falls when a topic goes."""

    copied_segments: int
    copied_bytes: int
    copy_errors: int
    fetches: int
    fetched_bytes: int
    fetch_errors: int
    deletions: int
    delete_errors: int
    store_requests: int
    store_bytes: int


class Metrics:
    """The metrics of one daemon, in a registry of their own. Methods that record do no I/O.

    Attributes:
        sources: what a scrape asks; each room of the daemon sets its own.
    """

    def __init__(self, *, version: str, clock: Clock) -> None:
        # Off: a second series per counter with the time of its creation, which no rate needs.
        disable_created_metrics()  # type: ignore[no-untyped-call] # prometheus-client has no types here
        self._clock = clock
        self.registry = CollectorRegistry()
        self._counters = {d: self._counter(d) for d in RECORDED if d.kind is Kind.COUNTER}
        self._gauges = {d: self._gauge(d) for d in RECORDED if d.kind is Kind.GAUGE}
        self._histograms = {d: self._histogram(d) for d in RECORDED if d.kind is Kind.HISTOGRAM}
        self.sources = ScrapeSources()
        self._longest_throttles_ms: dict[str, int] = {}
        self._gauges[BUILD_INFO].labels(version, platform.python_version()).set(1)
        self._gauges[RELOAD_SUCCESS].set(1)
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def copy_requested(self, topic: str) -> None:
        """Count a copy that is about to reach the store."""
        self._counters[COPY_REQUESTS].labels(topic).inc()

    def segment_copied(self, topic: str, *, size_bytes: int, seconds: float) -> None:
        """Count a copy whose COPY_SEGMENT_FINISHED is durable; ``seconds`` is the time of the attempt."""
        self._counters[COPY_BYTES].labels(topic).inc(size_bytes)
        self._histograms[COPY_SECONDS].observe(seconds)

    def copy_failed(self, topic: str) -> None:
        """Count a copy that ended in an error; a cancelled copy is no error."""
        self._counters[COPY_ERRORS].labels(topic).inc()

    def copy_throttled(self, throttle_ms: int) -> None:
        """Record how long a segment has to wait for the copy quota."""
        self._throttled("copy", throttle_ms)

    def gap_found(self, topic: str, *, offsets: int) -> None:
        """Count offsets that the broker deleted before they were ever seen."""
        self._counters[GAP_OFFSETS].labels(topic).inc(offsets)

    def fetch_requested(self, topic: str) -> None:
        """Count a read that goes to the tier."""
        self._counters[FETCH_REQUESTS].labels(topic).inc()

    def bytes_fetched(self, topic: str, size_bytes: int) -> None:
        """Count bytes handed to a reader."""
        self._counters[FETCH_BYTES].labels(topic).inc(size_bytes)

    def fetch_failed(self, topic: str) -> None:
        """Count a read that failed; an offset out of range is an answer, not a failure."""
        self._counters[FETCH_ERRORS].labels(topic).inc()

    def delete_requested(self, topic: str) -> None:
        """Count a remote segment whose deletion begins."""
        self._counters[DELETE_REQUESTS].labels(topic).inc()

    def delete_failed(self, topic: str) -> None:
        """Count a remote segment whose deletion failed and will be tried again."""
        self._counters[DELETE_ERRORS].labels(topic).inc()

    def dangling_swept(self, topic: str) -> None:
        """Count an unfinished copy that was removed."""
        self._counters[DANGLING_SWEPT].labels(topic).inc()

    def uploads_aborted(self, count: int) -> None:
        """Count unfinished multipart uploads that were discarded."""
        self._counters[UPLOADS_ABORTED].inc(count)

    def fetch_throttled(self, throttle_ms: int) -> None:
        """Record how long a read is put off because the fetch quota is exceeded."""
        self._throttled("fetch", throttle_ms)

    def remote_size_computed(self, seconds: float) -> None:
        """Record how long the computation of a partition's expired segments took."""
        self._histograms[SIZE_COMPUTATION_SECONDS].observe(seconds)

    def object_store_called(self, operation: str, *, outcome: str, duration_s: float, size_bytes: int = 0) -> None:
        """Record one call: ``operation`` and ``outcome`` come from small fixed sets, never from data."""
        self._histograms[STORE_SECONDS].labels(operation).observe(duration_s)
        self._counters[STORE_REQUESTS].labels(operation, outcome).inc()
        if size_bytes:
            self._counters[STORE_BYTES].labels(operation).inc(size_bytes)

    def object_store_attempted(self, operation: str, *, outcome: str) -> None:
        """Count one attempt at a call or at a part of an upload; ``operation`` and ``outcome`` as of a call."""
        self._counters[STORE_ATTEMPTS].labels(operation, outcome).inc()

    def requests_billed(self, topic: str, request_class: str, requests: int, size_bytes: int) -> None:
        """Count the requests that are billed for one attempt at a call; an empty topic stands for no topic."""
        self._counters[BILLED_REQUESTS].labels(topic, request_class).inc(requests)
        self._counters[BILLED_BYTES].labels(topic, request_class).inc(size_bytes)

    def endpoint_request_ended(
        self, listener: str, request: str, *, outcome: str, duration_s: float, principal: str, size_bytes: int
    ) -> None:
        """Record a request at the read endpoint; the caller bounds the number of principals."""
        self._counters[ENDPOINT_REQUESTS].labels(listener, request, outcome).inc()
        self._histograms[ENDPOINT_SECONDS].labels(request).observe(duration_s)
        self._counters[ENDPOINT_PRINCIPAL_BYTES].labels(principal).inc(size_bytes)

    def task_succeeded(self, task: str) -> None:
        """Remember that a task of this kind (copy, reconcile, sweep ...) has just succeeded."""
        self._gauges[LAST_SUCCESS].labels(task).set(self._clock.now_ms() / 1000)

    def config_reloaded(self, *, success: bool) -> None:
        """Record if the settings in force are those of the file."""
        self._gauges[RELOAD_SUCCESS].set(success)

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a topic that this broker no longer has; an unknown topic changes nothing."""
        for declaration, recorded in self._counters.items():
            if "topic" in declaration.labels:
                recorded.remove_by_labels({"topic": topic})

    def totals(self) -> WorkTotals:
        """Return the work so far, for two answers of which the difference is a rate."""
        return WorkTotals(
            copied_segments=_sum(self._histograms[COPY_SECONDS], "_count"),
            copied_bytes=_sum(self._counters[COPY_BYTES]),
            copy_errors=_sum(self._counters[COPY_ERRORS]),
            fetches=_sum(self._counters[FETCH_REQUESTS]),
            fetched_bytes=_sum(self._counters[FETCH_BYTES]),
            fetch_errors=_sum(self._counters[FETCH_ERRORS]),
            deletions=_sum(self._counters[DELETE_REQUESTS]),
            delete_errors=_sum(self._counters[DELETE_ERRORS]),
            store_requests=_sum(self._counters[STORE_REQUESTS]),
            store_bytes=_sum(self._counters[STORE_BYTES]),
        )

    def render(self) -> tuple[bytes, str]:
        """Return the body of ``/metrics`` and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """Compute the scraped metrics; called by the registry."""
        metadata, push = self.sources.metadata(), self.sources.push()
        simple = {d.name: _family(d) for d in SCRAPED if d.kind in {Kind.COUNTER, Kind.GAUGE}}
        samples = scrape(self.sources, now_ms=self._clock.now_ms(), metadata=metadata, push=push)
        for name, labels, value in samples:
            simple[name].add_metric(labels, value)
        yield from simple.values()
        yield from (_backend_summary(d, metadata) for d in SCRAPED if d.kind is Kind.SUMMARY)
        yield from push_histograms(push)

    def _throttled(self, quota: str, throttle_ms: int) -> None:
        self._histograms[THROTTLE_SECONDS].labels(quota).observe(throttle_ms / 1000)
        self._longest_throttles_ms[quota] = max(throttle_ms, self._longest_throttles_ms.get(quota, 0))
        self._gauges[THROTTLE_MAX_SECONDS].labels(quota).set(self._longest_throttles_ms[quota] / 1000)

    def _counter(self, declaration: Declaration) -> Counter:
        return Counter(declaration.name, declaration.help, declaration.labels, registry=self.registry)

    def _histogram(self, declaration: Declaration) -> Histogram:
        return Histogram(
            declaration.name, declaration.help, declaration.labels, buckets=_BUCKETS_S, registry=self.registry
        )

    def _gauge(self, declaration: Declaration) -> Gauge:
        return Gauge(declaration.name, declaration.help, declaration.labels, registry=self.registry)


def render_store_restore(use: StoreRestoreUse) -> bytes:
    """Return the metrics of restores of state stores in Prometheus' text format, and no others."""
    registry = CollectorRegistry()
    registry.register(_StoreRestoreCollector(use))
    return generate_latest(registry)


class _StoreRestoreCollector(Collector):
    def __init__(self, use: StoreRestoreUse) -> None:
        self._use = use

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of one moment."""
        families = {declaration.name: _family(declaration) for declaration in STORE_RESTORE}
        for name, labels, value in store_restore_samples(self._use):
            families[name].add_metric(labels, value)
        yield from families.values()


def _family(declaration: Declaration) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if declaration.kind is Kind.COUNTER else GaugeMetricFamily
    return kind(declaration.name, declaration.help, labels=declaration.labels)


def _backend_summary(declaration: Declaration, metadata: MetadataCounts) -> SummaryMetricFamily:
    family = SummaryMetricFamily(declaration.name, declaration.help, labels=declaration.labels)
    for operation, latency in sorted(metadata.backend.items()):
        family.add_metric((operation,), latency.count, latency.total_s)
    return family


def _sum(metric: Counter | Histogram, suffix: str = "_total") -> int:
    """Return the sum over all labels of the samples whose name ends in ``suffix``."""
    samples = (sample for family in metric.collect() for sample in family.samples)
    return round(sum(sample.value for sample in samples if sample.name.endswith(suffix)))
