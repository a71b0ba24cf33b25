"""``tierd status``: every partition as the running daemon sees it."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

from tierd.cli.asking import ask_daemon, until_interrupted
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, NodeOption, SocketOption
from tierd.cli.output.display import live_group, print_group
from tierd.cli.output.layout import Cell, LayoutPart, Style, plain_table, plain_text
from tierd.cli.output.printing import print_json
from tierd.cli.status_problems import (
    catalogue_lines,
    control_lines,
    descriptor_lines,
    grace_line,
    uncleanable_lines,
    unheld_lines,
)
from tierd.serve import (
    STATUS,
    HoldSummary,
    PartitionSummary,
    PipelineSummary,
    StatusAnswer,
    StatusRequest,
    TierSummary,
    by_urgency,
    cause_and_remedy,
    drill_line,
    drill_problems,
    endpoint_line,
    endpoint_problems,
    group_lines,
    push_lines,
    push_problems,
    unprotected_line,
)
from tierd.sizes import human_size

WATCH_INTERVAL_S = 2.0
_HOLDS = {
    "link": "by hard links",
    "descriptor": "by open files, which a restart of tierd loses",
    "none": "not at all",
}
_STYLES: dict[str, Style] = {
    "quarantined": "red",
    "waiting": "yellow",
    "paused": "yellow",
    "loading": "yellow",
    "copying": "green",
}


def status(
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show the status again every two seconds, until Ctrl-C."),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    socket: SocketOption = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show role, epoch, frontier and lag of every partition, and why it waits, as the running daemon sees it.

    Example: tierd status --watch
    """
    if node is not None:
        from tierd.cli.peer_requests import ask_node  # noqa: PLC0415 - of one form of the question

        ask_node(node, "status", config=config, socket=socket, as_json=as_json)
        return

    def ask() -> StatusAnswer:
        return ask_daemon(config, socket, STATUS, StatusRequest())

    if watch:
        with until_interrupted(ask, every_s=WATCH_INTERVAL_S) as answers:
            _show_each(answers, as_json=as_json)
    elif as_json:
        print_json(ask().to_json())
    else:
        print_group(*rendered(ask()))


def _show_each(answers: Iterable[StatusAnswer], *, as_json: bool) -> None:
    if as_json:
        for answer in answers:
            print_json(answer.to_json(), flush=True)
        return
    with live_group() as show:
        for answer in answers:
            show(*rendered(answer))


def rendered(status: StatusAnswer) -> list[LayoutPart]:
    """Return the answer for people: causes of not being ready first, then partitions by what needs a person."""
    head = plain_text(f"tierd {status.version}, process {status.pid}" + ("" if status.not_ready else ", ready"))
    causes = [plain_text(f"not ready: {cause}", "red") for cause in status.not_ready]
    table = plain_table(
        ("partition", "role", "state"), ("epoch", "tiered to", "hw", "segments", "size", "seconds"), "why"
    )
    for partition in by_urgency(status.partitions, state_of=lambda partition: partition.state):
        table.add_row(*_cells(partition))
    pipeline = "" if status.pipeline is None else pipeline_line(status.pipeline)
    damaged = [plain_text(line, "red") for line in uncleanable_lines(status.own_logs)]
    offline = [
        plain_text(f"log dir {each.path} is offline: {each.problem}", "red") for each in status.log_dirs if each.problem
    ]
    short = [plain_text(line, "red") for line in descriptor_lines(status.descriptors)]
    catalogue = [plain_text(line, "red") for line in catalogue_lines(status.catalogue)]
    drills = [plain_text(line, "red") for line in drill_problems(status.drills)]
    endpoint = [plain_text(line, "red") for line in endpoint_problems(status.endpoint)]
    push = [plain_text(line, "yellow") for line in push_problems(status.push)]
    unheld = [plain_text(line, "red") for line in unheld_lines(status.hold)]
    stored = (tier_line(status.tier), hold_line(status.hold), grace_line(status.partitions))
    control = [plain_text(line, "yellow") for line in control_lines(status.control)]
    endpoint_told = (endpoint_line(status.endpoint), *group_lines(status.endpoint))
    push_told = (*push_lines(status.push), unprotected_line(status.unprotected))
    told = (*stored, pipeline, drill_line(status.drills), *endpoint_told, *push_told)
    lines = [plain_text(line) for line in told if line]
    problems = [*causes, *offline, *unheld, *short, *catalogue, *drills, *endpoint, *control, *push]
    return [head, *problems, *lines, *damaged, table]


def tier_line(tier: TierSummary) -> str:
    """Return how much is in the tier and how old it is, in a line; empty without a segment."""
    if not tier.segments:
        return ""
    times = [_moment(time_ms) for time_ms in (tier.oldest_ms, tier.newest_ms) if time_ms is not None]
    age = f", from {times[0]} to {times[1]}" if len(times) > 1 else ""
    return f"in the tier: {human_size(tier.size_bytes)} in {tier.segments:,} segments of led partitions{age}"


def hold_line(hold: HoldSummary) -> str:
    """Return the held segments and the kind of the holds in each log dir in a line; empty before the first hold."""
    if not hold.log_dirs:
        return ""
    kinds = [f"{each.path} {_HOLDS.get(each.mode, each.mode)}{_bracketed(each.reason)}" for each in hold.log_dirs]
    return "; ".join([f"hold: {hold.segments} segments, {human_size(hold.bytes)}", *kinds])


def _bracketed(reason: str) -> str:
    return f" ({reason})" if reason else ""


def pipeline_line(pipeline: PipelineSummary) -> str:
    """Return the run under way in a line, else the last run and when the next one begins; empty without either."""
    running, last = pipeline.running, pipeline.last_run
    if running is not None:
        share = f" {100 * running.done // running.total} %" if running.total else ""
        replaced, failed = running.groups_replaced, running.groups_failed
        return f"pipeline: {running.stage}{share}, {replaced} groups replaced, {failed} failed"
    parts = []
    if last is not None:
        parts.append(f"last run {last.outcome.replace('_', ' ')} at {_moment(last.ended_ms)}")
    if pipeline.enabled and pipeline.next_begin_ms is not None:
        parts.append(f"next at {_moment(pipeline.next_begin_ms)}")
    return "pipeline: " + ", ".join(parts) if parts else ""


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _cells(partition: PartitionSummary) -> list[Cell]:
    return [
        partition.partition,
        partition.role,
        plain_text(partition.state, _STYLES.get(partition.state, "")),
        _number(partition.leader_epoch),
        _number(partition.copied_through),
        _number(partition.high_watermark),
        str(partition.lag_segments),
        human_size(partition.lag_bytes),
        f"{partition.lag_seconds:.0f}",
        cause_and_remedy(partition.last_error, partition.reason, partition.remedy),
    ]


def _number(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)
