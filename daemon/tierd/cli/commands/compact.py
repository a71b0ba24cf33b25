"""``tierd compact``: one run of the Spark job, its plan, and the history of runs."""

from datetime import UTC, datetime
from typing import Annotated, cast

import typer

import tierd.app
from tierd.app import past_runs
from tierd.cli.asking import state_dir_of
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption, PartitionsArgument
from tierd.cli.output.display import print_table
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.cli.output.progress_line import progress_line
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.serve import CompactionPlan, JsonObject
from tierd.sizes import human_size

_WENT_WELL = ("succeeded", "nothing_due")


def compact(
    partitions: PartitionsArgument = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Do one run now, then exit.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --once: only print the plan of the run.")] = False,
    history: Annotated[bool, typer.Option("--history", help="List past runs instead, newest last.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Compact and merge segments in the tier with Spark; exits with 1 if a part failed.

    A running daemon carries out the run, and continues after Ctrl-C. Without a daemon, this command carries it out, and
    Ctrl-C ends it: segments that were replaced stay replaced, the others stay as they were. Needs the extra spark
    and Java 17.

    Examples: tierd compact --once --dry-run, tierd compact --once orders-0, tierd compact --history
    """
    if once is history or (dry_run and history):
        print_error("tierd: compact needs --once, which --dry-run may follow, or --history")
        print_error("  next: tierd compact --once --dry-run")
        raise typer.Exit(ExitCode.USAGE)
    names = [TopicPartition.parse(name) for name in partitions or []]
    if history:
        runs = cast("list[JsonObject]", past_runs(state_dir_of(config)))
        if as_json or as_object:
            print_list(runs, as_object=as_object)
        else:
            _print_runs(runs)
        return
    deployment = tierd.app.Deployment(begin(config), config)
    as_json = as_json or as_object  # the answers below are one object each
    if dry_run:
        _print_plan(tierd.app.run_in_loop(tierd.app.plan_compaction(deployment, names)), as_json=as_json)
        return
    with progress_line("compact") as report_progress:
        report = tierd.app.run_in_loop(tierd.app.compact(deployment, names, on_progress=report_progress))
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if report["outcome"] not in _WENT_WELL:
        raise typer.Exit(ExitCode.NO)


def _print_plan(plan: CompactionPlan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan.to_json())
        return
    table = plain_table(("partition", "what"), ("segments", "groups", "size", "from", "to"), "why not")
    for work in plan.planned:
        offsets = str(work.first_dirty_offset), str(work.end_offset)
        counts = str(work.segments), str(work.groups)
        table.add_row(work.partition, work.kind, *counts, human_size(work.bytes), *offsets, "")
    for each in plan.skipped:
        table.add_row(each.partition, "-", "-", "-", "-", "-", "-", each.reason)
    if table.row_count:
        print_table(table)
    audited = [work.segments for work in plan.planned if work.kind == "audit"]
    words = f"; {sum(audited)} segments would be audited, others each time" if audited else ""
    print_line(f"{len(plan.planned) - len(audited)} partitions would be worked on, {len(plan.skipped)} not{words}")


def _print_report(report: JsonObject) -> None:
    before, after = int(str(report["bytes_before"])), int(str(report["bytes_after"]))
    print_line(
        f"{str(report['outcome']).replace('_', ' ')}: {report['partitions']} partitions, "
        f"{report['groups_replaced']} groups replaced, {report['groups_unchanged']} unchanged, "
        f"{report['groups_failed']} failed; {human_size(before)} became {human_size(after)}"
    )
    if report["audited_segments"]:
        size = human_size(int(str(report["audited_bytes"])))
        print_line(f"audited: {report['audited_segments']} segments, {size}; {report['damaged_segments']} damaged")
    unread = cast("JsonObject", report["counts"]).get("batches_unread", 0)
    if unread:
        print_line(f"not opened: {unread} batches that unpack to more than tierd opens; they stay as they are")
    for problem in cast("list[str]", report["problems"]):
        print_error(f"tierd: {problem}")
    if report["outcome"] not in _WENT_WELL and report["log_file"]:
        print_error(f"  next: see {report['log_file']}")


def _print_runs(runs: list[JsonObject]) -> None:
    columns = ("attempt", "seconds", "partitions", "replaced", "failed", "before", "after")
    table = plain_table(("began (UTC)", "run", "trigger", "outcome"), columns, "problems")
    for run in runs:
        began_ms, ended_ms = int(str(run["began_ms"])), int(str(run["ended_ms"]))
        table.add_row(
            datetime.fromtimestamp(began_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            *(str(run[name]) for name in ("run_id", "trigger", "outcome", "attempt")),
            f"{(ended_ms - began_ms) / 1000:.0f}",
            *(str(run[name]) for name in ("partitions", "groups_replaced", "groups_failed")),
            *(human_size(int(str(run[name]))) for name in ("bytes_before", "bytes_after")),
            "; ".join(cast("list[str]", run["problems"])),
        )
    print_table(table)
