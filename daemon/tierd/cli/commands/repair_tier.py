"""``tierd repair-tier``: repair what ``tierd verify`` found, as far as possible."""

import contextlib
from collections import Counter
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, RepairRequest, run_in_loop
from tierd.app import repair_tier as repair
from tierd.cli.failures import ExitCode
from tierd.cli.moments import duration_s_of
from tierd.cli.options import (
    DEFAULT_CONFIG,
    AcceptUnauthenticatedOption,
    ConfigOption,
    JsonObjectOption,
    JsonOption,
    PartitionsArgument,
)
from tierd.cli.output.json_lists import PrintItem, printed_lines
from tierd.cli.output.printing import print_line
from tierd.cli.output.progress_line import progress_line
from tierd.cli.session import begin
from tierd.model import TopicPartition, uuid_to_text
from tierd.tiering import RepairOutcome, RepairResult


def repair_tier(
    partitions: PartitionsArgument = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done, and why; works beside the daemon.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Download every segment and check every batch and index first.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Also carry out steps that remove records which were readable once.")
    ] = False,
    accept_unauthenticated: AcceptUnauthenticatedOption = False,
    min_age: Annotated[
        str | None,
        typer.Option(
            "--min-age",
            metavar="DURATION",
            help="Do not touch objects without metadata that are younger; default: 1h, or copy.dangling_grace.",
        ),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Repair the tier of the partitions that this broker leads; exits with 1 if a step failed.

    Segments whose objects are missing or damaged are uploaded again from this host's log dirs and holds, or completed
    from their own log. Segments that only the bucket knows are adopted if they fill a gap, and removed if no reader
    needs them. Unfinished uploads and deletions are ended. Stop the daemon first. After an interruption, run it again.

    Examples:
        tierd repair-tier --dry-run

        tierd repair-tier orders-0 --deep --yes
    """
    deployment = Deployment(begin(config), config)
    wanted = [TopicPartition.parse(name) for name in partitions or []]
    with progress_line("repairing") as report_progress:
        request = RepairRequest(
            names=wanted,
            dry_run=dry_run,
            deep=deep,
            is_confirmed=yes,
            accepts_unauthenticated=accept_unauthenticated,
            min_age_s=None if min_age is None else duration_s_of(min_age, "--min-age"),
            on_progress=report_progress,
        )
        as_json = as_json or as_object
        show = printed_lines(as_object=as_object) if as_json else contextlib.nullcontext(None)
        with show as print_item:
            counts = run_in_loop(_repair(deployment, request, print_item))
    if not as_json:
        summary = ", ".join(f"{counts[result]} {result.value}" for result in RepairResult if counts[result])
        print_line(summary or "nothing to do")
    if any(counts[result] for result in RepairResult if result.is_problem):
        raise typer.Exit(ExitCode.NO)


async def _repair(
    deployment: Deployment, request: RepairRequest, print_item: PrintItem | None
) -> Counter[RepairResult]:
    counts: Counter[RepairResult] = Counter()
    async with contextlib.aclosing(repair(deployment, request)) as outcomes:
        async for outcome in outcomes:
            counts[outcome.result] += 1
            if print_item is None:
                _print(outcome)
            else:
                print_item(_as_json(outcome))
    return counts


def _print(outcome: RepairOutcome) -> None:
    action = outcome.action
    kind = "" if action.kind == "nothing" else f" {action.kind.value}"
    danger = " (needs --yes)" if action.is_dangerous and outcome.result is RepairResult.PLANNED else ""
    print_line(f"{outcome.result.value}{kind}{danger}: {action.where}: {action.why}")
    if outcome.problem and outcome.problem != action.why:
        print_line(f"  because: {outcome.problem}")
    if outcome.remedy:
        print_line(f"  next: {outcome.remedy}")


def _as_json(outcome: RepairOutcome) -> dict[str, JsonValue]:
    action = outcome.action
    return {
        "action": action.kind.value,
        "result": outcome.result.value,
        "partition": None if action.partition is None else str(action.partition),
        "topic_id": None if action.partition is None else uuid_to_text(action.partition.topic_id),
        "where": action.where,
        "why": action.why,
        "dangerous": action.is_dangerous,
        "problem": outcome.problem,
        "remedy": outcome.remedy,
    }
