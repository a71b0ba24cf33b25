"""Drills in the status, for people: what is proven to come back from the tier, and what needs a person."""

from datetime import UTC, datetime

from tierd.serve.control_answers import DrillsSummary


def drill_line(drills: DrillsSummary) -> str:
    """Return what is proven, in one line; empty where drills are off and nothing was ever proven."""
    if not drills.enabled and drills.last_success_ms is None:
        return ""
    parts = [f"{drills.partitions - drills.unproven} of {drills.partitions} partitions proven to come back"]
    if drills.proven_until_ms:
        parts.append(f"oldest proof {_moment(drills.proven_until_ms)}")
    if drills.running:
        parts.append(f"running now: {drills.partition or 'planning'}")
    elif drills.next_begin_ms is not None:
        parts.append(f"next at {_moment(drills.next_begin_ms)}")
    if drills.next_broker_begin_ms is not None:
        parts.append(f"the whole broker at {_moment(drills.next_broker_begin_ms)}")
    return f"drills: {', '.join(parts)}"


def drill_problems(drills: DrillsSummary) -> list[str]:
    """Return a line for each problem: why drills are not done, and the partitions whose last drill was no proof."""
    lines = [f"drills: {drills.problem}"] if drills.problem else []
    lines += [f"drill of {partition} {why}" for partition, why in drills.failing.items()]
    left_out = drills.failing_partitions - len(drills.failing)
    return [*lines, f"{left_out} more partitions are not proven: tierd drill --history"] if left_out > 0 else lines


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
