"""The course of a restore into a log dir on the command line: plan, confirmation, progress, outcomes."""

from collections.abc import Callable, Iterable
from pathlib import Path

import typer
from pydantic import JsonValue

from tierd.app import Deployment, LogDirOutcome, LogDirPlan, RetentionHolds, log_dir_restore, run_in_loop
from tierd.cli.costs import cost_json
from tierd.cli.failures import ExitCode
from tierd.cli.moments import utc_text
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.output.progress_line import ReportProgress, progress_line
from tierd.cli.restore_options import RestoreArguments
from tierd.errors import NotConfirmedError
from tierd.model import uuid_to_text
from tierd.remote import ObjectInfo
from tierd.restore import NodePlan, PartitionPlan, RestoredPartition
from tierd.sizes import human_size


def restore_into_log_dir(
    deployment: Deployment, arguments: RestoreArguments, *, is_confirmed: bool, is_plan: bool, as_json: bool
) -> None:
    """Plan, print the plan, and carry it out if that is confirmed.

    Raises:
        NotConfirmedError: the plan was printed and nothing was done.
        RefusedError: the plan is refused.
        TierError: a store cannot be read, or the target cannot be written.
    """
    with progress_line("restoring") as report_progress:
        outcomes = run_in_loop(
            _restore(deployment, arguments, report_progress, is_confirmed=is_confirmed, is_plan=is_plan, json=as_json)
        )
    if any(outcome.problem is not None for outcome in outcomes):
        raise typer.Exit(ExitCode.NO)


async def _restore(
    deployment: Deployment,
    arguments: RestoreArguments,
    report_progress: ReportProgress,
    *,
    is_confirmed: bool,
    is_plan: bool,
    json: bool,
) -> list[LogDirOutcome]:
    outcomes: list[LogDirOutcome] = []
    async with log_dir_restore(deployment, arguments.request(report_progress)) as restore:
        plan = restore.plan
        if not json:
            print_plan(plan)
            _print_holds(restore.holds)
        try:
            plan.require_accepted()
            if is_confirmed:
                progress = _Progress(plan, report_progress)

                def finished(outcome: LogDirOutcome) -> None:
                    progress.finished()
                    outcomes.append(outcome)
                    if not json:
                        _print_outcome(outcome)

                await restore.run(arrived=progress.arrived, finished=finished)
            elif not is_plan:
                raise NotConfirmedError("nothing was restored yet", remedy="look at the plan; --yes carries it out")
        finally:
            if json:
                print_json(_as_json(plan, restore.holds, outcomes, is_plan=not is_confirmed))
    if is_confirmed and not json:
        done = [outcome for outcome in outcomes if outcome.restored is not None]
        if plan.node.metadata is not None:
            print_line(f"restored __cluster_metadata-0: {plan.node.metadata.snapshot.name}")
        print_line(f"{len(done)} of {len(outcomes)} partitions are restored")
    return outcomes


class _Progress:
    """Progress of a restore in bytes and partitions."""

    def __init__(self, plan: LogDirPlan, report: Callable[[str], None]) -> None:
        self._total_bytes = sum(each.fetch_bytes for each in plan.wanted)
        self._partitions = len(plan.wanted)
        self._done_bytes = 0
        self._done = 0
        self._report = report

    def arrived(self, size_bytes: int) -> None:
        """Count bytes that were fetched."""
        self._done_bytes += size_bytes
        self._show()

    def finished(self) -> None:
        """Count a partition that came to its end."""
        self._done += 1
        self._show()

    def _show(self) -> None:
        size = f"{human_size(self._done_bytes)} of {human_size(self._total_bytes)}"
        self._report(f"{size}, {self._done} of {self._partitions} partitions")


def print_plan(plan: LogDirPlan) -> None:
    """Print what is restored, what is missing, and what it costs."""
    for problem in plan.problems:
        print_line(f"{problem.severity.value} {problem.kind}: {problem.where}: {problem.what}")
    for text in plan.catalogue_problems:
        print_line(f"warning catalogue: {text}")
    table = plain_table(("partition",), ("start", "end", "segments", "size"), "records until")
    if plan.unchecked_epochs:
        print_line(f"warning leader epochs: not compared with those of the controller: {plan.unchecked_epochs}")
        print_line("  next: make sure that the metadata of the cluster is not older than the records")
    for each in plan.plans:
        if not each.is_left_out:
            table.add_row(*_row(each))
    if table.row_count:
        print_table(table)
    for each in plan.plans:
        _print_remarks(each)
    _print_node(plan.node)
    if plan.time_rule:
        print_line(plan.time_rule)
    wanted = plan.wanted
    size = human_size(sum(each.fetch_bytes for each in wanted))
    requests = sum(each.fetch_requests for each in wanted)
    origin = "the bucket" if plan.is_from_bucket else "the metadata store"
    print_line(
        f"{len(wanted)} of {len(plan.plans)} partitions: {size} in about {requests} requests, "
        f"{plan.cost.total:.2f} {plan.currency}; the metadata is from {origin}"
    )


def _print_node(plan: NodePlan) -> None:
    if plan.meta_properties is not None:
        print_line("the log dir has no meta.properties: the one of the catalogue is written, with its directory id")
    if plan.metadata is not None:
        found = plan.metadata
        print_line(
            f"the log dir has no cluster metadata: the snapshot {found.snapshot.name} of node {found.node_id}, seen "
            f"{utc_text(found.observed_ms)}, is restored; what changed in the cluster after it is lost"
        )
    for finding in plan.findings:
        print_line(f"{finding.severity.value} node: {finding.text}")
        print_line(f"  next: {finding.remedy}")


def _print_holds(holds: RetentionHolds) -> None:
    for each in holds.topics:
        if each.problem:
            print_line(f"retention {each.topic}: tierd cannot hold it: {each.problem}")
            print_line("  before the restored broker deletes old segments, run:")
            print_line(f"    {each.hold_command}")
            print_line("  once the records are no longer needed, run:")
            print_line(f"    {each.lift_command}")
        else:
            print_line(f"retention {each.topic}: the restore holds it; tierd restore release-retention lifts the hold")


def _row(plan: PartitionPlan) -> tuple[str, ...]:
    newest = plan.newest_timestamp_ms
    return (
        str(plan.partition),
        str(plan.log_start_offset),
        str(plan.end_offset),
        str(len(plan.parts)),
        human_size(plan.fetch_bytes),
        "" if newest is None else utc_text(newest),
    )


def _print_remarks(plan: PartitionPlan) -> None:
    for join in plan.joins:
        print_line(
            f"joins {plan.partition}: offsets {join.start_offset} to {join.end_offset - 1} from {join.directory}"
        )
    for missing in plan.missing:
        offsets = f"offsets {missing.start_offset} to {missing.end_offset - 1}"
        print_line(f"missing {plan.partition}: {offsets}: {missing.reason}")
    for finding in plan.findings:
        print_line(f"{finding.severity.value} {plan.partition}: {finding.text}")
        if finding.remedy:
            print_line(f"  next: {finding.remedy}")


def _print_outcome(outcome: LogDirOutcome) -> None:
    if outcome.problem is not None:
        print_line(f"failed {outcome.plan.partition}: {outcome.problem}")
        if outcome.problem.remedy:
            print_line(f"  next: {outcome.problem.remedy}")
    if outcome.restored is not None:
        restored = outcome.restored
        offsets = (
            f"offsets {restored.log_start_offset} to {restored.end_offset - 1}, the next one {restored.log_end_offset}"
        )
        print_line(f"restored {restored.partition}: {offsets}, {human_size(restored.size_bytes)}")
        for dropped in restored.dropped:
            print_line(f"  left out: offsets {dropped.start_offset} to {dropped.end_offset - 1}: {dropped.reason}")
        for joined in restored.joined:
            print_line(f"  joined: offsets {joined.start_offset} to {joined.end_offset - 1} from {joined.directory}")
        for directory, reason in restored.not_merged.items():
            if not any(reason in each.reason for each in restored.dropped):
                print_line(f"  not joined: {directory}: {reason}")
        if restored.moved_aside is not None:
            print_line(f"  moved aside: {restored.moved_aside}")


def _as_json(
    plan: LogDirPlan, holds: RetentionHolds, outcomes: list[LogDirOutcome], *, is_plan: bool
) -> dict[str, JsonValue]:
    wanted = plan.wanted
    return {
        "dry_run": is_plan,
        "from_bucket": plan.is_from_bucket,
        "time_rule": plan.time_rule,
        "unchecked_epochs": plan.unchecked_epochs,
        "archived": archived_json(plan.archived),
        "retention_holds": [
            {
                "topic": each.topic,
                "topic_id": uuid_to_text(each.topic_id),
                "held_by_tierd": not each.problem,
                "problem": each.problem,
                "before": None if each.before is None else dict(each.before),
                "hold_command": each.hold_command,
                "lift_command": each.lift_command,
            }
            for each in holds.topics
        ],
        "writes_meta_properties": plan.node.meta_properties is not None,
        "node": _node_json(plan.node),
        "catalogue_problems": list(plan.catalogue_problems),
        "fetch_bytes": sum(each.fetch_bytes for each in wanted),
        "fetch_requests": sum(each.fetch_requests for each in wanted),
        "cost": cost_json(plan.cost),
        "currency": plan.currency,
        "problems": [
            {"severity": each.severity.value, "kind": each.kind, "where": each.where, "what": each.what}
            for each in plan.problems
        ],
        "partitions": [plan_json(each) for each in plan.plans],
        "restored": [_outcome_json(each) for each in outcomes],
    }


def _node_json(plan: NodePlan) -> dict[str, JsonValue]:
    found = plan.metadata
    return {
        "refused": plan.refusal is not None,
        "metadata_snapshot": "" if found is None else found.snapshot.name,
        "metadata_node_id": None if found is None else found.node_id,
        "metadata_observed_ms": None if found is None else found.observed_ms,
        "next_producer_id": None if found is None else found.snapshot.next_producer_id,
        "findings": [
            {"severity": each.severity.value, "text": each.text, "remedy": each.remedy} for each in plan.findings
        ],
    }


def archived_json(archived: Iterable[ObjectInfo]) -> list[JsonValue]:
    """Return objects that have to be thawed before a plan is carried out, for programs."""
    return [
        {
            "key": each.key,
            "size_bytes": each.size_bytes,
            "storage_class": each.storage_class,
            "state": each.archive.value,
        }
        for each in archived
    ]


def plan_json(plan: PartitionPlan) -> dict[str, JsonValue]:
    """Return the plan of a partition for programs."""
    return {
        "partition": str(plan.partition),
        "topic_id": uuid_to_text(plan.partition.topic_id),
        "mode": plan.mode.value,
        "refused": plan.is_refused,
        "left_out": plan.is_left_out,
        "log_start_offset": plan.log_start_offset,
        "end_offset": plan.end_offset,
        "target_offset": plan.target_offset,
        "known_end_offset": plan.known_end_offset,
        "segments": len(plan.parts),
        "fetch_bytes": plan.fetch_bytes,
        "fetch_requests": plan.fetch_requests,
        "compacted": plan.is_compacted,
        "newest_timestamp_ms": plan.newest_timestamp_ms,
        "joins": [_join_json(*each) for each in plan.joins],
        "missing": [each._asdict() for each in plan.missing],
        "findings": [
            {"severity": each.severity.value, "text": each.text, "remedy": each.remedy} for each in plan.findings
        ],
    }


def _join_json(directory: Path, start_offset: int, end_offset: int) -> JsonValue:
    return {"directory": str(directory), "start_offset": start_offset, "end_offset": end_offset}


def _outcome_json(outcome: LogDirOutcome) -> dict[str, JsonValue]:
    problem = outcome.problem
    return {
        "partition": str(outcome.plan.partition),
        "problem": "" if problem is None else str(problem),
        "remedy": "" if problem is None else problem.remedy,
        **({} if outcome.restored is None else _restored_json(outcome.restored)),
    }


def _restored_json(restored: RestoredPartition) -> dict[str, JsonValue]:
    return {
        "directory": str(restored.directory),
        "topic_id": uuid_to_text(restored.partition.topic_id),
        "log_start_offset": restored.log_start_offset,
        "end_offset": restored.end_offset,
        "log_end_offset": restored.log_end_offset,
        "merged_offset": restored.merged_offset,
        "joined": [_join_json(*each) for each in restored.joined],
        "not_joined": [
            {"directory": str(directory), "reason": reason} for directory, reason in restored.not_merged.items()
        ],
        "dropped": [each._asdict() for each in restored.dropped],
        "segments": restored.segment_count,
        "batches": restored.batch_count,
        "size_bytes": restored.size_bytes,
        "rebuilt_indexes": restored.rebuilt_indexes,
        "moved_aside": None if restored.moved_aside is None else str(restored.moved_aside),
        "manifest": str(restored.manifest),
    }
