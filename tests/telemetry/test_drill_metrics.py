"""Metrics of drills: declared, and present as soon as there is something to say."""

from tierd.telemetry import DrillUse
from tierd.telemetry.drill_metrics import DRILL_METRICS, drill_samples

FULL = DrillUse(
    proven_until_s={"orders": 20.0, "audit": 30.0},
    unproven=1,
    failing=2,
    last_success_s=50.0,
    drilled={"proven": 3, "failed": 1},
    run_failures=4,
    is_running=True,
    next_begin_s=60.0,
)


def test_every_declared_metric_has_a_sample() -> None:
    samples = list(drill_samples(FULL))
    assert {name for name, _, _ in samples} == {each.name for each in DRILL_METRICS}
    assert ("tierd_proven_until_timestamp_seconds", ("orders",), 20.0) in samples
    assert ("tierd_proven_until_min_timestamp_seconds", (), 20.0) in samples


def test_times_that_are_not_known_have_no_series() -> None:
    names = {name for name, _, _ in drill_samples(DrillUse())}
    assert names == {
        "tierd_drill_unproven_partitions",
        "tierd_drill_failing_partitions",
        "tierd_drill_run_failures_total",
        "tierd_drill_running",
    }
