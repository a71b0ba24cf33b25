"""``tierd restore topic``: send topics of the tier into a live cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import (
    Deployment,
    NewTopicOptions,
    SourceRequest,
    TopicRestoreJob,
    TopicRestoreRequest,
    run_in_loop,
    topic_restore_job,
)
from tierd.cli.failures import ExitCode
from tierd.cli.moments import timestamp_ms_of
from tierd.cli.options import (
    DEFAULT_CONFIG,
    AcceptUnauthenticatedOption,
    ClusterIdOption,
    ConfigOption,
    FromBucketOption,
    JsonOption,
    TopicPatternsArgument,
    require_patterns,
)
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.output.progress_line import ReportProgress, progress_line
from tierd.cli.restore_options import (
    AcceptHolesOption,
    ByTimestampOption,
    DryRunOption,
    SkipExpiredOption,
    ToTimeOption,
    expired_segments,
    require_consistent,
)
from tierd.cli.restore_output import archived_json, plan_json, print_plan
from tierd.cli.session import begin
from tierd.cli.target_options import GiveUpAfterOption, ToConfigOption, ToOption, target_connection
from tierd.restore import AcknowledgedCount, PartitionOutcome, change_command
from tierd.sizes import human_size

_RETENTION = "retention.ms"


def topic(
    patterns: TopicPatternsArgument,
    *,
    to: ToOption,
    to_config: ToConfigOption = None,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Another name in the target; repeatable.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", metavar="T", help="Begin with the first record at or after T, in each partition."),
    ] = None,
    to_time: ToTimeOption = None,
    by_timestamp: ByTimestampOption = False,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, metavar="N", help="Partitions of the new topics.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, metavar="N", help="Replicas of each new partition.")
    ] = None,
    topic_config: Annotated[
        list[str] | None,
        typer.Option("--topic-config", metavar="KEY=VALUE", help="A setting of the new topics; KEY= leaves one out."),
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Add the records to topics that exist already.")] = False,
    hold_retention: Annotated[
        bool,
        typer.Option("--hold-retention", help="Give new topics no retention; the output says how to set it back."),
    ] = False,
    skip_expired: SkipExpiredOption = False,
    accept_holes: AcceptHolesOption = False,
    journal: Annotated[
        Path | None,
        typer.Option("--journal", metavar="DIR", help="Directory of journal and offset map; default: in state_dir."),
    ] = None,
    give_up_after: GiveUpAfterOption = 600.0,
    cluster_id: ClusterIdOption = None,
    from_bucket: FromBucketOption = False,
    accept_unauthenticated: AcceptUnauthenticatedOption = False,
    dry_run: DryRunOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Send the committed records of topics from the tier into a live cluster, each exactly once and in order.

    Topics are created as the catalogue has them. Records keep their keys, values, headers, timestamps and compression;
    offsets change, and a map of them is written beside the journal for tierd restore groups. After an interruption, run
    the same command again: it goes on where it was. Where the target can be stopped, tierd restore partition is better:
    it keeps the offsets.

    Examples:
        tierd restore topic orders --to new-kafka:9092 --dry-run

        tierd restore topic 'orders.*' --to new-kafka:9092 --rename orders=orders-restored
    """
    require_consistent(to_time, hold=hold_retention, skip=skip_expired, by_timestamp=by_timestamp)
    require_patterns(patterns)
    config_changes = {key: value or None for key, value in map(_pair, topic_config or ())}
    _require_number(config_changes)
    deployment = Deployment(begin(config), config)
    with progress_line("restoring") as report_progress:
        request = TopicRestoreRequest(
            topics=tuple(patterns),
            renames=dict(map(_pair, rename or ())),
            to=target_connection(to, to_config),
            new_topics=NewTopicOptions(
                partition_count=partitions,
                replication_factor=replication_factor,
                config=config_changes,
                may_exist=append,
            ),
            from_time_ms=None if from_time is None else timestamp_ms_of(from_time),
            to_time_ms=None if to_time is None else timestamp_ms_of(to_time),
            by_timestamp=by_timestamp,
            expired=expired_segments(hold=hold_retention, skip=skip_expired),
            accepts_holes=accept_holes,
            journal=journal,
            patience_s=give_up_after,
            source=SourceRequest(
                cluster_id=cluster_id, from_bucket=from_bucket, accepts_unauthenticated=accept_unauthenticated
            ),
            on_progress=report_progress,
        )
        outcomes = run_in_loop(_restore(deployment, request, report_progress, is_plan=dry_run, as_json=as_json))
    if any(outcome.problem is not None for outcome in outcomes):
        raise typer.Exit(ExitCode.NO)


async def _restore(
    deployment: Deployment,
    request: TopicRestoreRequest,
    report_progress: ReportProgress,
    *,
    is_plan: bool,
    as_json: bool,
) -> list[PartitionOutcome]:
    outcomes: list[PartitionOutcome] = []
    count = AcknowledgedCount()
    async with topic_restore_job(deployment, request) as job:
        total = human_size(sum(plan.fetch_bytes for plan in job.plan.wanted))

        def on_progress(latest: AcknowledgedCount) -> None:
            nonlocal count
            count = latest
            report_progress(f"{latest.records} records, {human_size(latest.size_bytes)} sent, of {total} in the tier")

        if not as_json:
            _print_plan(job)
        try:
            job.plan.require_accepted()
            if not is_plan:
                outcomes = await job.run(on_progress=on_progress)
        finally:
            if as_json:
                print_json(_as_json(job, outcomes, count, is_plan=is_plan))
        if not (is_plan or as_json):
            _print_outcomes(job, outcomes, count, bootstrap=",".join(request.to.bootstrap_servers))
    return outcomes


def _print_plan(job: TopicRestoreJob) -> None:
    print_plan(job.plan)
    for each in job.topics:
        factor = each.new.replication_factor
        replicas = "the default number of" if factor < 0 else str(factor)
        print_line(
            f"topic {each.source} becomes {each.new.name}: {each.new.partition_count} partitions, {replicas} replicas"
        )
        for key, value in each.new.config.items():
            print_line(f"  {key}={value}")
    print_line(f"target cluster {job.target_cluster}; journal {job.journal}")


def _print_outcomes(
    job: TopicRestoreJob, outcomes: list[PartitionOutcome], count: AcknowledgedCount, *, bootstrap: str
) -> None:
    for outcome in outcomes:
        if outcome.problem is None:
            continue
        print_line(f"failed {outcome.name}: {outcome.problem}")
        if outcome.problem.remedy:
            print_line(f"  next: {outcome.problem.remedy}")
    done = sum(outcome.problem is None for outcome in outcomes)
    print_line(f"{done} of {len(outcomes)} partitions are restored, {count.records} records in this run")
    print_line(f"offset map: {job.offset_map}")
    for each in job.topics:
        if each.settings.held:
            print_line(f"topic {each.new.name} has no retention; to set it back:")
            print_line(f"  {change_command(each.new.name, each.settings.held, bootstrap)}")


def _as_json(
    job: TopicRestoreJob, outcomes: list[PartitionOutcome], count: AcknowledgedCount, *, is_plan: bool
) -> dict[str, JsonValue]:
    return {
        "dry_run": is_plan,
        "target_cluster": job.target_cluster,
        "journal": str(job.journal),
        "offset_map": str(job.offset_map),
        "topics": [
            {
                "source": each.source,
                "target": each.new.name,
                "partitions": each.new.partition_count,
                "replication_factor": each.new.replication_factor,
                "config": dict(each.new.config),
                "config_afterwards": dict(each.settings.afterwards),
                "held": dict(each.settings.held),
            }
            for each in job.topics
        ],
        "partitions": [plan_json(each) for each in job.plan.plans],
        "archived": archived_json(job.plan.archived),
        "records": count.records,
        "size_bytes": count.size_bytes,
        "restored": [
            {
                "partition": str(each.name),
                "target": str(each.target),
                "problem": "" if each.problem is None else str(each.problem),
                "remedy": "" if each.problem is None else each.problem.remedy,
            }
            for each in outcomes
        ],
    }


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE")
    return key, value


def _require_number(config: Mapping[str, str | None]) -> None:
    retention = config.get(_RETENTION)
    if retention is not None and not retention.removeprefix("-").isdecimal():
        raise typer.BadParameter(f"--topic-config {_RETENTION}={retention}: it is a number of milliseconds, or -1")
