"""The page for people: one table, without scripts and without foreign content. It reloads every few seconds."""

from collections.abc import Sequence
from html import escape as escape_html

from tierd.control_characters import visible
from tierd.serve.control_answers import DrillsSummary, EndpointSummary
from tierd.serve.drill_report import drill_line, drill_problems
from tierd.serve.endpoint_report import endpoint_line, endpoint_problems, group_lines
from tierd.serve.push_report import push_lines, push_problems, unprotected_line
from tierd.serve.status_snapshot import StatusSnapshot, lag_seconds
from tierd.serve.urgency import by_urgency, cause_and_remedy
from tierd.tiering import LogDirState, PartitionStatus

REFRESH_S = 5
_MAX_ROWS = 1000  # partitions that need a person come first; /status has all
_MAX_UNCLEANABLE = 20

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2rem;color:#222}table{border-collapse:collapse;margin-top:1rem}"
    "th,td{padding:.25rem .75rem;text-align:left;border-bottom:1px solid #ddd}td.n{text-align:right}"
    "tr.quarantined td,ul.uncleanable,p.trouble{background:#fdd}"
    "tr.waiting td,tr.paused td,tr.loading td{background:#ffd}"
)
_COLUMNS = ("Partition", "State", "Epoch", "In the tier up to", "High watermark", "Segments", "Bytes", "Seconds", "Why")


def render_page(snapshot: StatusSnapshot) -> str:
    """Return the whole page."""
    ordered = by_urgency(snapshot.partitions, state_of=lambda partition: partition.state)
    rows = "".join(_row(partition, snapshot.now_ms) for partition in ordered[:_MAX_ROWS])
    left_out = len(ordered) - _MAX_ROWS
    more = f"<p>{left_out} more partitions in <a href=/status>/status</a></p>" if left_out > 0 else ""
    head = "".join(f"<th>{column}" for column in _COLUMNS)
    readiness = snapshot.readiness()
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content={REFRESH_S}>"
        f"<title>tierd</title><style>{_STYLE}</style>"
        f"<h1>tierd</h1><p class={'ready' if snapshot.is_ready else 'trouble'}>{escape(readiness)}. "
        f"{escape(snapshot.summary())}.</p>"
        f"<p>cluster {escape(snapshot.cluster_id)}, node {snapshot.node_id}, version {escape(snapshot.version)}. "
        "<a href=/status>status</a> <a href=/metrics>metrics</a> <a href=/readyz>readiness</a></p>"
        f"{_offline(snapshot.log_dirs)}{_problem(snapshot.descriptors_problem())}{_problem(snapshot.catalogue_problem())}"
        f"{_drills(snapshot.drills_summary())}{_endpoint(snapshot.endpoint_summary())}{_push(snapshot)}"
        f"{_uncleanable(snapshot.uncleanable())}"
        f"<table><thead><tr>{head}</thead><tbody>{rows}</tbody></table>{more}</html>"
    )


def _offline(log_dirs: Sequence[LogDirState]) -> str:
    return "".join(
        f"<p class=trouble>log dir {escape(str(each.path))} is offline: {escape(each.problem)}"
        for each in log_dirs
        if each.problem
    )


def _problem(text: str) -> str:
    return f"<p class=trouble>{escape(text)}</p>" if text else ""


def _drills(drills: DrillsSummary) -> str:
    line = drill_line(drills)
    problems = "".join(_problem(problem) for problem in drill_problems(drills))
    return f"{problems}<p>{escape(line)}</p>" if line else problems


def _endpoint(endpoint: EndpointSummary) -> str:
    problems = "".join(_problem(problem) for problem in endpoint_problems(endpoint))
    lines = [line for line in (endpoint_line(endpoint), *group_lines(endpoint)) if line]
    return problems + "".join(f"<p>{escape(line)}</p>" for line in lines)


def _push(snapshot: StatusSnapshot) -> str:
    push = snapshot.push_summary()
    problems = "".join(_problem(problem) for problem in push_problems(push))
    lines = [line for line in (*push_lines(push), unprotected_line(snapshot.unprotected_summary())) if line]
    return problems + "".join(f"<p>{escape(line)}</p>" for line in lines)


def _uncleanable(logs: Sequence[tuple[str, str]]) -> str:
    if not logs:
        return ""
    items = "".join(f"<li>{escape(log)}: {escape(why)}" for log, why in logs[:_MAX_UNCLEANABLE])
    more = f"<li>{len(logs) - _MAX_UNCLEANABLE} more" if len(logs) > _MAX_UNCLEANABLE else ""
    return (
        f"<p>Logs that are not cleaned until they are repaired (tierd inspect):<ul class=uncleanable>{items}{more}</ul>"
    )


def _row(partition: PartitionStatus, now_ms: int) -> str:
    why = cause_and_remedy(partition.last_error, partition.reason, partition.remedy)
    numbers = (
        _number(partition.leader_epoch),
        _number(partition.copied_through),
        _number(partition.high_watermark),
        _number(partition.lag.segments),
        _number(partition.lag.bytes),
        f"{lag_seconds(partition, now_ms):.0f}",
    )
    return (
        f"<tr class={escape(partition.state)}><td>{escape(str(partition.partition))}<td>{escape(partition.state)}"
        + "".join(f"<td class=n>{number}" for number in numbers)
        + f"<td>{escape(why)}"
    )


def escape(text: str) -> str:
    """Return a text as HTML: its markup has no effect, and control characters are shown as their escapes."""
    return escape_html(visible(text))


def _number(value: int | None) -> str:
    return "" if value is None or value < 0 else str(value)
