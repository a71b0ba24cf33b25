"""``tierd restore groups``: set the positions of consumer groups in a live cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, GroupRestoreJob, GroupRestoreRequest, group_restore_job, run_in_loop
from tierd.cli.failures import ExitCode
from tierd.cli.moments import timestamp_ms_of, utc_text
from tierd.cli.options import DEFAULT_CONFIG, ClusterIdOption, ConfigOption, JsonOption
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.cli.restore_options import DryRunOption
from tierd.cli.session import begin
from tierd.cli.target_options import GiveUpAfterOption, ToConfigOption, ToOption, target_connection
from tierd.restore import GroupOutcome, PlannedPosition


def groups(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Consumer groups; none means all.")] = None,
    *,
    to: ToOption,
    to_config: ToConfigOption = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Moment of the positions: ISO 8601; without it the newest."),
    ] = None,
    offset_map: Annotated[
        Path | None,
        typer.Option(
            "--map", metavar="FILE", help="The offset-map.jsonl of tierd restore topic; without it, offsets stay."
        ),
    ] = None,
    give_up_after: GiveUpAfterOption = 60.0,
    cluster_id: ClusterIdOption = None,
    dry_run: DryRunOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Set the positions of consumer groups in a live cluster to those that the catalogue has.

    With --map the positions are translated to the offsets of the restored topics. Without it they stay, as is right
    where log dirs were restored. A position beyond the end of a partition is lowered to the end. Groups with members
    are refused: stop their consumers first. Positions that a group has in the target already are replaced.

    Examples:
        tierd restore groups --to new-kafka:9092 --map /var/lib/tierd/restore/…/offset-map.jsonl --dry-run

        tierd restore groups billing --to new-kafka:9092 --at 2026-11-21T15:00:00Z
    """
    request = GroupRestoreRequest(
        groups=tuple(names or ()),
        to=target_connection(to, to_config),
        at_ms=None if at is None else timestamp_ms_of(at),
        offset_map=offset_map,
        cluster_id=cluster_id,
        patience_s=give_up_after,
    )
    outcomes = run_in_loop(_restore(Deployment(begin(config), config), request, is_plan=dry_run, as_json=as_json))
    if any(outcome.problem is not None for outcome in outcomes):
        raise typer.Exit(ExitCode.NO)


async def _restore(
    deployment: Deployment, request: GroupRestoreRequest, *, is_plan: bool, as_json: bool
) -> Sequence[GroupOutcome]:
    outcomes: Sequence[GroupOutcome] = ()
    async with group_restore_job(deployment, request) as job:
        for problem in job.problems:
            print_error(f"tierd: {problem}; earlier positions stand in where there are any")
        if not is_plan:
            outcomes = await job.run()
    if as_json:
        print_json(_as_json(job, outcomes, is_plan=is_plan))
        return outcomes
    _print(job, outcomes, is_plan=is_plan)
    return outcomes


def _print(job: GroupRestoreJob, outcomes: Sequence[GroupOutcome], *, is_plan: bool) -> None:
    table = plain_table(("group", "partition", "in the target"), ("offset", "new offset"), "change")
    for each in job.planned:
        table.add_row(each.group, str(each.source), _target(each), str(each.offset), _new(each), _change(each))
    print_table(table)
    for node_id, taken_ms in sorted(job.taken_ms.items()):
        print_line(f"node {node_id}: positions of {utc_text(taken_ms)}")
    for outcome in outcomes:
        if outcome.problem is not None:
            print_line(f"failed {outcome.group}: {outcome.problem}")
            print_line(f"  next: {outcome.problem.remedy}")
    done = sum(outcome.problem is None for outcome in outcomes)
    print_line("nothing was set: this is the plan" if is_plan else f"{done} of {len(outcomes)} groups are set")


def _target(each: PlannedPosition) -> str:
    return "-" if each.target is None else str(each.target)


def _new(each: PlannedPosition) -> str:
    return "-" if each.target is None else str(each.new_offset)


def _change(each: PlannedPosition) -> str:
    return f"{each.change.value}: {each.reason}" if each.reason else each.change.value


def _as_json(job: GroupRestoreJob, outcomes: Sequence[GroupOutcome], *, is_plan: bool) -> dict[str, JsonValue]:
    return {
        "dry_run": is_plan,
        "taken_ms": {str(node_id): taken_ms for node_id, taken_ms in job.taken_ms.items()},
        "positions": [
            {
                "group": each.group,
                "partition": str(each.source),
                "offset": each.offset,
                "target": None if each.target is None else str(each.target),
                "new_offset": None if each.target is None else each.new_offset,
                "change": each.change.value,
                "reason": each.reason,
            }
            for each in job.planned
        ],
        "groups": [
            {"group": each.group, "problem": "" if each.problem is None else str(each.problem)} for each in outcomes
        ],
    }
