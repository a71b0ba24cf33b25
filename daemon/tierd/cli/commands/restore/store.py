"""``tierd restore store``: fill state stores from their changelogs in the tier."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import (
    Deployment,
    SourceRequest,
    StoreKind,
    StoreOutcome,
    StoreRestoreRequest,
    run_in_loop,
    store_restore,
)
from tierd.app import PlannedStore as Planned
from tierd.cli.completion import partition_names
from tierd.cli.failures import ExitCode
from tierd.cli.options import (
    DEFAULT_CONFIG,
    AcceptUnauthenticatedOption,
    ClusterIdOption,
    ConfigOption,
    FromBucketOption,
    JsonOption,
)
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.cli.output.progress_line import ReportProgress, progress_line
from tierd.cli.restore_options import DryRunOption
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.restore import ChangelogProgress, StreamsTarget, load_streams_topology
from tierd.sizes import human_size


def store(
    partitions: Annotated[
        list[str],
        typer.Argument(metavar="TP", help="Changelogs, topic-partition each.", autocompletion=partition_names),
    ],
    *,
    into: Annotated[
        Path,
        typer.Option("--into", metavar="DIR", help="Directory of the stores.", file_okay=False, resolve_path=True),
    ],
    kind: Annotated[
        StoreKind, typer.Option("--kind", help="Files of the stores; rocksdb needs the extra of that name.")
    ] = StoreKind.SQLITE,
    timestamped: Annotated[
        bool,
        typer.Option("--timestamped", help="Keep the timestamp of each record before its value: 8 bytes, big-endian."),
    ] = False,
    streams: Annotated[
        Path | None,
        typer.Option(
            "--streams",
            metavar="FILE",
            help="Topology file: fill the stores of this Kafka Streams application; --into is its state.dir.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Read also the log dirs of this host, where they may be mixed with the tier."),
    ] = False,
    compacted: Annotated[
        bool | None,
        typer.Option("--compacted/--not-compacted", help="The cleanup of the topics, where tierd cannot know it."),
    ] = None,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            "--metrics-file",
            metavar="FILE",
            help="Write metrics of the restore to this file every 5 seconds, for node_exporter's textfile collector.",
            dir_okay=False,
        ),
    ] = None,
    cluster_id: ClusterIdOption = None,
    from_bucket: FromBucketOption = False,
    accept_unauthenticated: AcceptUnauthenticatedOption = False,
    dry_run: DryRunOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Fill a key-value store for each changelog from the tier: the newest value of each key, without deleted keys.

    Records of aborted or open transactions are left out. Needs no daemon and no broker. After an interruption, run the
    same command again: each store goes on behind its last record. Exits with 1 if a store is not complete.

    Examples:
        tierd restore store app-counts-changelog-0 --into /var/lib/app/state --dry-run

        tierd restore store app-counts-changelog-0 app-counts-changelog-1 --into /var/lib/app/state --kind rocksdb

        tierd restore store app-counts-changelog-0 --into /var/lib/kafka-streams --streams topology.yaml
    """
    if streams is not None and timestamped:
        raise typer.BadParameter("the topology file says which stores keep timestamps", param_hint="--timestamped")
    if streams is not None and metrics_file is not None:
        raise typer.BadParameter("stores of Kafka Streams have no metrics of tierd", param_hint="--metrics-file")
    with progress_line("restoring") as report_progress:
        request = StoreRestoreRequest(
            names=tuple(map(TopicPartition.parse, partitions)),
            into=into,
            kind=kind,
            is_timestamped=timestamped,
            is_compacted=compacted,
            reads_log_dirs=local,
            source=SourceRequest(
                cluster_id=cluster_id, from_bucket=from_bucket, accepts_unauthenticated=accept_unauthenticated
            ),
            on_progress=report_progress,
            metrics_file=metrics_file,
            streams=None if streams is None else StreamsTarget(load_streams_topology(streams), into),
        )
        deployment = Deployment(begin(config), config)
        plans, outcomes = run_in_loop(_restore(deployment, request, report_progress, is_plan=dry_run))
    if as_json:
        print_json([_as_json(plan, outcomes) for plan in plans])
    elif dry_run:
        _print_plan(plans)
    else:
        _print_outcomes(outcomes)
    failed = [each.problem for each in outcomes if each.problem is not None]
    for problem in failed:
        print_error(f"tierd: {problem}")
        print_error(f"  next: {problem.remedy}")
    if failed:
        raise typer.Exit(ExitCode.NO)


async def _restore(
    deployment: Deployment, request: StoreRestoreRequest, report_progress: ReportProgress, *, is_plan: bool
) -> tuple[Sequence[Planned], list[StoreOutcome]]:
    async with store_restore(deployment, request) as restore:
        if is_plan:
            return restore.plans, []
        return restore.plans, await restore.run(lambda stores: report_progress(_summary(stores)))


def _summary(stores: Sequence[ChangelogProgress]) -> str:
    left = [each for each in stores if each.remaining]
    remaining, per_s = sum(each.remaining for each in left), sum(each.records_per_s for each in left)
    return f"{len(stores) - len(left)} of {len(stores)} stores, {remaining} offsets left, {per_s:.0f} records/s"


def _print_plan(plans: Sequence[Planned]) -> None:
    table = plain_table(("changelog", "directory"), ("start", "end", "undecided", "in the tier"), "")
    for plan in plans:
        table.add_row(
            str(plan.partition),
            str(plan.directory),
            str(plan.start_offset),
            str(plan.end_offset),
            str(plan.log_end_offset - plan.end_offset),
            human_size(plan.tier_bytes),
            "" if plan.is_compacted else "not compacted",
        )
    print_table(table)


def _print_outcomes(outcomes: Sequence[StoreOutcome]) -> None:
    for each in outcomes:
        if each.problem is None:
            print_line(
                f"{each.planned.partition}: {each.records} records up to offset {each.next_offset}, "
                f"in {each.planned.directory}"
            )
    done = sum(each.problem is None for each in outcomes)
    print_line(f"{done} of {len(outcomes)} stores are complete")


def _as_json(plan: Planned, outcomes: Sequence[StoreOutcome]) -> JsonValue:
    outcome = next((each for each in outcomes if each.planned is plan), None)
    return {
        "partition": str(plan.partition),
        "directory": str(plan.directory),
        "start_offset": plan.start_offset,
        "end_offset": plan.end_offset,
        "log_end_offset": plan.log_end_offset,
        "tier_bytes": plan.tier_bytes,
        "is_compacted": plan.is_compacted,
        "is_complete": outcome is not None and outcome.problem is None,
        "records": None if outcome is None else outcome.records,
        "next_offset": None if outcome is None else outcome.next_offset,
        "problem": None if outcome is None or outcome.problem is None else str(outcome.problem),
    }
