"""The read endpoint in words, for the status on a terminal and for the page."""

from tierd.serve.control_answers import EndpointGroupSummary, EndpointSummary

_MOST_GROUPS = 20


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
