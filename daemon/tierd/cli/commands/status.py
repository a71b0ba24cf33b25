"""``tierd status``: what the running daemon says of every partition."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict, cast

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from tierd.app import run_in_loop
from tierd.cli.display import answer_console, human_size, plain_table
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from tierd.cli.session import begin
from tierd.serve import request

WATCH_INTERVAL_S = 2.0
_STYLES = {"quarantined": "red", "waiting": "yellow", "paused": "yellow", "loading": "yellow", "copying": "green"}


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


class StatusFacts(TypedDict):
    """What this command shows of the daemon; the daemon sends more."""

    version: str
    pid: int
    not_ready: list[str]
    partitions: list[PartitionFacts]
    pipeline: NotRequired[PipelineFacts]


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds, until Ctrl-C.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show, per partition, role, epoch, frontier, lag and why nothing happens, as the running daemon sees it.

    Example: tierd status --watch
    """
    run_in_loop(_show(begin(config, secrets=False).state_dir, as_json=as_json, watch=watch))


async def _show(state_dir: Path, *, as_json: bool, watch: bool) -> None:
    console = answer_console()
    if as_json:
        while True:
            print(json.dumps(await request(state_dir, "status")), flush=True)
            if not watch:
                return
            await asyncio.sleep(WATCH_INTERVAL_S)
    snapshot = await _fetch(state_dir)
    if not watch:
        console.print(_render(snapshot))
        return
    with Live(_render(snapshot), console=console, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            live.update(_render(await _fetch(state_dir)), refresh=True)


async def _fetch(state_dir: Path) -> StatusFacts:
    return cast("StatusFacts", await request(state_dir, "status"))


def _render(facts: StatusFacts) -> Group:
    readiness = "ready" if not facts["not_ready"] else "not ready: " + "; ".join(facts["not_ready"])
    head = Text(f"tierd {facts['version']}, process {facts['pid']}, {readiness}")
    table = plain_table(
        ("partition", "role", "state"), ("epoch", "tiered to", "hw", "segments", "size", "seconds"), "why"
    )
    for partition in facts["partitions"]:
        table.add_row(*_cells(partition))
    said = pipeline_line(facts["pipeline"]) if "pipeline" in facts else ""
    return Group(head, Text(said), table) if said else Group(head, table)


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


def _cells(partition: PartitionFacts) -> list[Text]:
    why = partition["last_error"] or partition["reason"] or ""
    return [
        Text(partition["partition"]),
        Text(partition["role"]),
        Text(partition["state"], style=_STYLES.get(partition["state"], "")),
        Text(_number(partition["leader_epoch"])),
        Text(_number(partition["copied_through"])),
        Text(_number(partition["high_watermark"])),
        Text(str(partition["lag_segments"])),
        Text(human_size(partition["lag_bytes"])),
        Text(f"{partition['lag_seconds']:.0f}"),
        Text(why),
    ]


def _number(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)
