"""Metrics of the Spark job at each scrape: the run under way, and the runs since the start."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tierd.telemetry.declaration import Sample, counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineUse:
    """State of the daemon's job; counts are since the start.

    Attributes:
        running: True while a run is under way.
        progress: part of the run's present stage that is done, from 0 to 1; 0 while it is unknown.
        next_begin_s: Unix time at which the timetable begins the next run; None without one.
        runs: ended, by outcome.
        last_ended_s: Unix time at which the last run of an outcome ended.
        groups: groups of neighbouring segments that the job considered, by outcome.
        audited: segments of which every byte was checked, by result; ``audited_bytes``: of their logs.
        counts: other counts of the job, by name.
    """

    running: bool = False
    progress: float = 0.0
    next_begin_s: float | None = None
    runs: Mapping[str, int] = field(default_factory=dict)
    last_ended_s: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    audited: Mapping[str, int] = field(default_factory=dict)
    audited_bytes: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


PIPELINE = (
    gauge("tierd_pipeline_running", "1 during a run of the Spark job, otherwise 0."),
    gauge("tierd_pipeline_progress_ratio", "Progress of the run in its present stage, from 0 to 1."),
    gauge("tierd_pipeline_next_run_timestamp_seconds", "Unix time of the begin of the next scheduled run."),
    counter("tierd_pipeline_runs_total", "Runs that ended, by outcome.", ("outcome",)),
    gauge(
        "tierd_pipeline_last_run_timestamp_seconds",
        "Unix time of the end of the last run with this outcome; no series before the first run.",
        ("outcome",),
    ),
    counter(
        "tierd_pipeline_groups_total",
        "Groups of neighbouring segments, by result: replaced, unchanged or failed.",
        ("result",),
    ),
    counter("tierd_pipeline_input_bytes_total", "Log bytes of segments that runs replaced."),
    counter("tierd_pipeline_output_bytes_total", "Log bytes of the segments that runs wrote as replacements."),
    counter("tierd_pipeline_audited_segments_total", "Audited segments, by result: sound or damaged.", ("result",)),
    counter("tierd_pipeline_audited_bytes_total", "Log bytes of segments that were audited."),
    counter("tierd_pipeline_records_total", "Counts of the job, such as records_read.", ("count",)),
)


def pipeline_samples(use: PipelineUse) -> Iterator[Sample]:
    """Yield the samples of ``PIPELINE``."""
    yield "tierd_pipeline_running", (), use.running
    yield "tierd_pipeline_progress_ratio", (), use.progress
    if use.next_begin_s is not None:
        yield "tierd_pipeline_next_run_timestamp_seconds", (), use.next_begin_s
    for outcome, count in sorted(use.runs.items()):
        yield "tierd_pipeline_runs_total", (outcome,), count
    for outcome, ended_s in sorted(use.last_ended_s.items()):
        yield "tierd_pipeline_last_run_timestamp_seconds", (outcome,), ended_s
    for result, count in sorted(use.groups.items()):
        yield "tierd_pipeline_groups_total", (result,), count
    yield "tierd_pipeline_input_bytes_total", (), use.bytes_before
    yield "tierd_pipeline_output_bytes_total", (), use.bytes_after
    for result, count in sorted(use.audited.items()):
        yield "tierd_pipeline_audited_segments_total", (result,), count
    yield "tierd_pipeline_audited_bytes_total", (), use.audited_bytes
    for name, count in sorted(use.counts.items()):
        yield "tierd_pipeline_records_total", (name,), count
