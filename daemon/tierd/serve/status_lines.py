"""Parts of the status in words, for a terminal and for the page."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from tierd.serve.control_answers import (
    DrillsSummary,
    EndpointGroupSummary,
    EndpointSummary,
    KeptPartition,
    PushLeaderSummary,
    PushStandbySummary,
    PushSummary,
    SentPartition,
    StandbyOfPartition,
    UnprotectedSummary,
)

_T = TypeVar("_T")

_MOST_LINES: Final = 20
_MOST_GROUPS: Final = 20
_URGENCY: Final = ("quarantined", "waiting", "paused", "loading", "copying")  # these need a person first
_MIB: Final = 1 << 20


def push_lines(push: PushSummary) -> list[str]:
    """Return a line for what this host sends, and one for the copies that it keeps; none where push is off."""
    if push.leader is None:
        return []
    lines = [] if push.enabled else ["push: switched off (push.enabled); standbys fetch"]
    if push.leader.partitions:
        lines.append(_sent_line(push.leader))
    if push.standby is not None:
        lines.append(_kept_line(push.standby))
    return lines


def push_problems(push: PushSummary) -> list[str]:
    """Return a line for each problem of push replication; the worst first, and a bounded number of them."""
    if push.leader is None:
        return []
    lines = [f"push: {push.certificate_problem}"] if push.certificate_problem else []
    lines += _bounded([*_of_the_leader(push.leader), *_sent_problems(push.leader)])
    if push.standby is not None:
        lines += _bounded([*_of_the_standby(push.standby), *_kept_problems(push.standby)])
    return lines


def unprotected_line(unprotected: UnprotectedSummary) -> str:
    """Return what a loss of this host now would cost, in a line; empty when it would cost nothing."""
    if not unprotected.bytes:
        return ""
    size = f"{unprotected.bytes / _MIB:.1f} MiB"
    return (
        f"not protected: {size} are neither in the tier nor on a standby; "
        f"the oldest record is {unprotected.seconds:.1f} s old, of {unprotected.partition}"
    )


def _sent_line(leader: PushLeaderSummary) -> str:
    standbys = [each for partition in leader.partitions for each in partition.standbys]
    pushed = sum(each.mode == "push" for each in standbys)
    nodes = sorted({each.node_id for each in standbys})
    worst = max(standbys, key=lambda each: each.lag_ms, default=None)
    lag = "" if worst is None else f", largest lag {worst.lag_ms} ms, {_lag(standbys)} bytes in all"
    return (
        f"push: {len(leader.partitions)} partitions to nodes {', '.join(map(str, nodes))}, "
        f"{pushed} of {len(standbys)} copies in sessions{lag}"
    )


def _lag(standbys: Iterable[StandbyOfPartition]) -> int:
    return sum(each.lag_bytes for each in standbys)


def _kept_line(standby: PushStandbySummary) -> str:
    if not standby.ready:
        return "standby: the copies are being loaded"
    pushed = sum(each.mode == "push" for each in standby.partitions)
    lag = sum(each.lag_records or 0 for each in standby.partitions)
    return f"standby: {len(standby.partitions)} copies, {pushed} in sessions, {lag} records behind"


def _of_the_leader(leader: PushLeaderSummary) -> list[str]:
    tail = leader.tail
    lines = [f"push: {problem}" for problem in (tail.watch_problem, *tail.log_dir_problems.values()) if problem]
    lines += [f"push: {name} is not read: {problem}" for name, problem in tail.problems.items()]
    return [
        *lines,
        *(f"push: {each.partition} is not sent: {each.problem}" for each in leader.partitions if each.problem),
    ]


def _sent_problems(leader: PushLeaderSummary) -> list[str]:
    pairs = [(partition, each) for partition in leader.partitions for each in partition.standbys if each.why_not_pushed]
    pairs.sort(key=lambda pair: -pair[1].lag_ms)
    return [_sent_problem(*pair) for pair in pairs]


def _sent_problem(partition: SentPartition, standby: StandbyOfPartition) -> str:
    lag = f"{standby.lag_records} records, {standby.lag_bytes} bytes, {standby.lag_ms} ms behind"
    return f"push: {partition.partition} to node {standby.node_id} has no session: {standby.why_not_pushed}; {lag}"


def _of_the_standby(standby: PushStandbySummary) -> list[str]:
    lines = (
        ["standby: the disk of the copies is full, and nothing is taken: make room in push.standby.log_dir"]
        if standby.disk_full
        else []
    )
    lines += [
        f"standby: node {each.node_id} does not answer: {each.problem}" for each in standby.leaders if each.problem
    ]
    return [*lines, *(f"standby: {name}: {why}" for name, why in standby.conflicts.items())]


def _kept_problems(standby: PushStandbySummary) -> list[str]:
    return [f"standby: {each.partition}: {_kept_problem(each)}" for each in standby.partitions if _kept_problem(each)]


def _kept_problem(kept: KeptPartition) -> str:
    if kept.last_error:
        return kept.last_error
    if not kept.online:
        return "its log cannot be used"
    return "it is made anew, and has not everything yet" if kept.rebuilding else ""


def _bounded(lines: Sequence[str]) -> list[str]:
    left_out = len(lines) - _MOST_LINES
    more = [f"{left_out} more problems: tierd status --json"] if left_out > 0 else []
    return [*lines[:_MOST_LINES], *more]


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


def endpoint_line(endpoint: EndpointSummary) -> str:
    """Return the state of the endpoint in one line; empty where it is off."""
    if not endpoint.listeners:
        return ""
    connections = ", ".join(f"{each.connections} at {name}" for name, each in sorted(endpoint.listeners.items()))
    age_s = endpoint.watermark_age_s
    age = "" if age_s is None else f", high watermarks of the {endpoint.watermark_source} {age_s:.1f} s old"
    return f"read endpoint: {endpoint.topics} topics, connections: {connections}{age}"


def endpoint_problems(endpoint: EndpointSummary) -> list[str]:
    """Return a line for each problem of the endpoint, and for the clients that it holds back."""
    lines = []
    if endpoint.watermark_problem:
        lines.append(f"read endpoint: no high watermarks from the broker: {endpoint.watermark_problem}")
    if endpoint.certificate_problem:
        lines.append(f"read endpoint: the former certificate is in force: {endpoint.certificate_problem}")
    held = [*(f"listener {name}" for name in endpoint.held_listeners), *endpoint.held_principals]
    if held:
        lines.append(f"read endpoint: held back until tierd endpoint release: {', '.join(held)}")
    return lines


def group_lines(endpoint: EndpointSummary) -> list[str]:
    """Return a line for each consumer group, those with the largest lag first."""
    ordered = sorted(endpoint.groups.items(), key=lambda item: (-(item[1].lag or 0), item[0]))
    lines = [f"group {name}: {_group(group)}" for name, group in ordered[:_MOST_GROUPS]]
    left_out = len(ordered) - _MOST_GROUPS
    return [*lines, f"{left_out} more groups: tierd status --json"] if left_out > 0 else lines


def _group(group: EndpointGroupSummary) -> str:
    bound = "" if group.is_lag_complete else "at least "
    lag = "lag not known" if group.lag is None else f"{bound}{group.lag} records behind"
    return f"{group.state}, {group.members} members, {group.partitions} partitions, {lag}"


def by_urgency(partitions: Iterable[_T], *, state_of: Callable[[_T], str]) -> list[_T]:
    """Return ``partitions`` by the urgency of their states; partitions of equal urgency keep their order."""
    return sorted(partitions, key=lambda partition: _rank(state_of(partition)))


def cause_and_remedy(last_error: str | None, reason: str | None, remedy: str) -> str:
    """Return why a partition is in its state, in a line: the error, or else the reason, and the next step."""
    return "; ".join(filter(None, (last_error or reason, remedy)))


def _rank(state: str) -> int:
    return _URGENCY.index(state) if state in _URGENCY else len(_URGENCY)
