"""Metrics of drills, at each scrape: what is proven to come back from the tier, and since when."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tierd.telemetry.declaration import Sample, counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillUse:
    """State of the drills of this host; counts are since the start.

    Attributes:
        proven_until_s: Unix time through which the content of each topic is proven; 0 while one of its partitions was
            never proven.
        unproven: partitions that were never proven.
        failing: partitions whose last drill was no proof.
        last_success_s: Unix time of the end of the last proof of any partition; None before the first.
        drilled: drilled partitions, by outcome.
        run_failures: drills that ended before their last partition, because of a service or of this host.
        is_running: a drill of the daemon is under way.
        next_begin_s: Unix time at which the schedule begins the next drill; None without one.
    """

    proven_until_s: Mapping[str, float] = field(default_factory=dict)
    unproven: int = 0
    failing: int = 0
    last_success_s: float | None = None
    drilled: Mapping[str, int] = field(default_factory=dict)
    run_failures: int = 0
    is_running: bool = False
    next_begin_s: float | None = None


DRILL_METRICS = (
    gauge(
        "tierd_proven_until_timestamp_seconds",
        "Unix time of the oldest proof among the partitions of the topic that this broker leads: a drill has restored "
        "all that the tier had then; 0 while one of them was never proven.",
        ("topic",),
    ),
    gauge(
        "tierd_proven_until_min_timestamp_seconds",
        "Smallest tierd_proven_until_timestamp_seconds of any topic; no series without partitions in the tier.",
    ),
    gauge("tierd_drill_unproven_partitions", "Partitions in the tier, led here, that no drill has proven yet."),
    gauge("tierd_drill_failing_partitions", "Partitions in the tier, led here, whose last drill was no proof."),
    gauge(
        "tierd_drill_last_success_timestamp_seconds",
        "Unix time of the last proof of any partition; no series before the first.",
    ),
    counter(
        "tierd_drill_partitions_total",
        "Partitions that drills of the daemon took, by outcome: proven, empty, failed or skipped.",
        ("outcome",),
    ),
    counter(
        "tierd_drill_run_failures_total",
        "Drills of the daemon that ended early, because of a service or of this host; tierd status says why.",
    ),
    gauge("tierd_drill_running", "1 during a drill of the daemon, otherwise 0."),
    gauge("tierd_drill_next_run_timestamp_seconds", "Unix time of the begin of the next scheduled drill."),
)


def drill_samples(use: DrillUse) -> Iterator[Sample]:
    """Yield the samples of ``DRILL_METRICS``."""
    for topic, until_s in sorted(use.proven_until_s.items()):
        yield "tierd_proven_until_timestamp_seconds", (topic,), until_s
    if use.proven_until_s:
        yield "tierd_proven_until_min_timestamp_seconds", (), min(use.proven_until_s.values())
    yield "tierd_drill_unproven_partitions", (), use.unproven
    yield "tierd_drill_failing_partitions", (), use.failing
    if use.last_success_s is not None:
        yield "tierd_drill_last_success_timestamp_seconds", (), use.last_success_s
    for outcome, count in sorted(use.drilled.items()):
        yield "tierd_drill_partitions_total", (outcome,), count
    yield "tierd_drill_run_failures_total", (), use.run_failures
    yield "tierd_drill_running", (), use.is_running
    if use.next_begin_s is not None:
        yield "tierd_drill_next_run_timestamp_seconds", (), use.next_begin_s
