"""The page for people: one table, no script, nothing from elsewhere; it asks for itself again every few seconds."""

from html import escape

from tierd.serve.status import StatusSnapshot, lag_seconds
from tierd.tiering import PartitionStatus

REFRESH_S = 5
_MAX_ROWS = 1000  # what needs a person comes first; the rest is in /status

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2rem;color:#222}table{border-collapse:collapse;margin-top:1rem}"
    "th,td{padding:.25rem .75rem;text-align:left;border-bottom:1px solid #ddd}td.n{text-align:right}"
    "tr.quarantined td{background:#fdd}tr.waiting td,tr.paused td,tr.loading td{background:#ffd}"
)
_COLUMNS = ("Partition", "State", "Epoch", "In the tier up to", "High watermark", "Segments", "Bytes", "Seconds", "Why")
_URGENCY = ("quarantined", "waiting", "paused", "loading", "copying")


def render_page(snapshot: StatusSnapshot) -> str:
    """Return the whole page."""
    ordered = sorted(snapshot.partitions, key=_urgency)
    rows = "".join(_row(partition, snapshot.now_ms) for partition in ordered[:_MAX_ROWS])
    left_out = len(ordered) - _MAX_ROWS
    more = f"<p>{left_out} more partitions in <a href=/status>/status</a></p>" if left_out > 0 else ""
    head = "".join(f"<th>{column}" for column in _COLUMNS)
    readiness = "ready" if not snapshot.not_ready else "not ready: " + "; ".join(snapshot.not_ready)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content={REFRESH_S}>"
        f"<title>tierd</title><style>{_STYLE}</style>"
        f"<h1>tierd</h1><p>{escape(readiness)}. {escape(snapshot.summary())}.</p>"
        f"<p>cluster {escape(snapshot.cluster_id)}, node {snapshot.node_id}, version {escape(snapshot.version)}. "
        "<a href=/status>status</a> <a href=/metrics>metrics</a> <a href=/readyz>readiness</a></p>"
        f"<table><thead><tr>{head}</thead><tbody>{rows}</tbody></table>{more}</html>"
    )


def _urgency(partition: PartitionStatus) -> tuple[int, str, int]:
    rank = _URGENCY.index(partition.state) if partition.state in _URGENCY else len(_URGENCY)
    return rank, partition.partition.topic, partition.partition.partition


def _row(partition: PartitionStatus, now_ms: int) -> str:
    why = partition.last_error or partition.reason or ""
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


def _number(value: int | None) -> str:
    return "" if value is None or value < 0 else str(value)
