"""``tierd status``: what the running daemon says of every partition."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict, cast

import typer

from tierd.app import run_in_loop
from tierd.cli.display import Cell, Part, Style, human_size, live_group, plain_table, plain_text, print_group
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, SocketOption
from tierd.cli.printing import print_json
from tierd.cli.session import daemon_state_dir
from tierd.serve import by_urgency, request

WATCH_INTERVAL_S = 2.0
_MAX_UNCLEANABLE = 20
_STYLES: dict[str, Style] = {
    "quarantined": "red",
    "waiting": "yellow",
    "paused": "yellow",
    "loading": "yellow",
    "copying": "green",
}


class PartitionFacts(TypedDict):
    """What this command shows of a partition; the daemon sends more."""

    partition: str
    role: str
    leader_epoch: int | None
    state: str
    reason: str | None
    last_error: str | None
    copied_through: int | None
    high_watermark: int | None
    lag_segments: int
    lag_bytes: int
    lag_seconds: float


class RunningFacts(TypedDict):
    """What this command shows of the pipeline's run; the daemon sends more."""

    stage: str
    done: int
    total: int
    groups_replaced: int
    groups_failed: int


class LastRunFacts(TypedDict):
    """What this command shows of the pipeline's last run; the daemon sends more."""

    outcome: str
    ended_ms: int


class PipelineFacts(TypedDict):
    """What this command shows of the pipeline; the daemon sends more."""

    enabled: bool
    running: RunningFacts | None
    last_run: LastRunFacts | None
    next_begin_ms: int | None


class OwnLogsFacts(TypedDict):
    """What this command shows of tierd's own logs; the daemon sends more, and nothing where it has none."""

    uncleanable: NotRequired[dict[str, str]]


class DescriptorFacts(TypedDict):
    """What this command shows of open descriptors; the daemon sends more."""

    open: int
    limit: int
    near_limit: bool


class LogDirFacts(TypedDict):
    """What this command shows of a log dir; the daemon sends more."""

    path: str
    problem: str


class StatusFacts(TypedDict):
    """What this command shows of the daemon; the daemon sends more."""

    version: str
    pid: int
    not_ready: list[str]
    partitions: list[PartitionFacts]
    log_dirs: NotRequired[list[LogDirFacts]]
    pipeline: NotRequired[PipelineFacts]
    own_logs: NotRequired[OwnLogsFacts]
    descriptors: NotRequired[DescriptorFacts]


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds, until Ctrl-C.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    socket: SocketOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show, per partition, role, epoch, frontier, lag and why nothing happens, as the running daemon sees it.

    Example: tierd status --watch
    """
    run_in_loop(_show(daemon_state_dir(config, socket), as_json=as_json, watch=watch))


async def _show(state_dir: Path, *, as_json: bool, watch: bool) -> None:
    if as_json:
        while True:
            print_json(await request(state_dir, "status"), flush=True)
            if not watch:
                return
            await asyncio.sleep(WATCH_INTERVAL_S)
    snapshot = await _fetch(state_dir)
    if not watch:
        print_group(*rendered(snapshot))
        return
    with live_group(*rendered(snapshot)) as show:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            show(*rendered(await _fetch(state_dir)))


async def _fetch(state_dir: Path) -> StatusFacts:
    return cast("StatusFacts", await request(state_dir, "status"))


def rendered(facts: StatusFacts) -> list[Part]:
    """Return the answer for people: causes of not being ready first, then partitions by what needs a person."""
    head = plain_text(f"tierd {facts['version']}, process {facts['pid']}" + ("" if facts["not_ready"] else ", ready"))
    causes = [plain_text(f"not ready: {cause}", "red") for cause in facts["not_ready"]]
    table = plain_table(
        ("partition", "role", "state"), ("epoch", "tiered to", "hw", "segments", "size", "seconds"), "why"
    )
    for partition in by_urgency(facts["partitions"], state_of=lambda partition: partition["state"]):
        table.add_row(*_cells(partition))
    said = pipeline_line(facts["pipeline"]) if "pipeline" in facts else ""
    damaged = [plain_text(line, "red") for line in uncleanable_lines(facts.get("own_logs", {}))]
    offline = [
        plain_text(f"log dir {each['path']} is offline: {each['problem']}", "red")
        for each in facts.get("log_dirs", [])
        if each["problem"]
    ]
    short = [plain_text(line, "red") for line in descriptor_lines(facts.get("descriptors"))]
    return [head, *causes, *offline, *short, *([plain_text(said)] if said else []), *damaged, table]


def descriptor_lines(facts: DescriptorFacts | None) -> list[str]:
    """Return a line when descriptors run short, and what to do; none for a daemon that does not say."""
    if facts is None or not facts["near_limit"]:
        return []
    return [f"{facts['open']} of {facts['limit']} descriptors are open: raise LimitNOFILE of the unit"]


def uncleanable_lines(facts: OwnLogsFacts) -> list[str]:
    """Return a line for each own log that is not cleaned until a person has repaired it, and what to do."""
    logs = list(facts.get("uncleanable", {}).items())
    lines = [f"{log} is not cleaned: {why}; run tierd inspect" for log, why in logs[:_MAX_UNCLEANABLE]]
    left_out = len(logs) - _MAX_UNCLEANABLE
    return [*lines, f"{left_out} more logs are not cleaned: tierd status --json"] if left_out > 0 else lines


def pipeline_line(facts: PipelineFacts) -> str:
    """The pipeline in a line: the run under way, else the last one and when the next begins; empty with neither."""
    running, last = facts["running"], facts["last_run"]
    if running is not None:
        share = f" {100 * running['done'] // running['total']} %" if running["total"] else ""
        replaced, failed = running["groups_replaced"], running["groups_failed"]
        return f"pipeline: {running['stage']}{share}, {replaced} groups replaced, {failed} failed"
    said = []
    if last is not None:
        said.append(f"last run {last['outcome'].replace('_', ' ')} at {_moment(last['ended_ms'])}")
    if facts["enabled"] and facts["next_begin_ms"] is not None:
        said.append(f"next at {_moment(facts['next_begin_ms'])}")
    return "pipeline: " + ", ".join(said) if said else ""


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _cells(partition: PartitionFacts) -> list[Cell]:
    why = partition["last_error"] or partition["reason"] or ""
    return [
        partition["partition"],
        partition["role"],
        plain_text(partition["state"], _STYLES.get(partition["state"], "")),
        _number(partition["leader_epoch"]),
        _number(partition["copied_through"]),
        _number(partition["high_watermark"]),
        str(partition["lag_segments"]),
        human_size(partition["lag_bytes"]),
        f"{partition['lag_seconds']:.0f}",
        why,
    ]


def _number(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)
