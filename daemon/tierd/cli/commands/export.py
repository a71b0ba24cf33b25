"""``tierd export``: topics of the tier as files."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, SourceRequest, run_in_loop
from tierd.cli.failures import ExitCode, exit_code_of
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
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.cli.output.progress_line import progress_bar, progress_line
from tierd.cli.restore_options import DryRunOption
from tierd.cli.session import begin
from tierd.config import parse_bytes
from tierd.exporting import ExportFolder, ExportFormat, ExportLimits, ExportRequest
from tierd.model import IsolationLevel
from tierd.scanning import AtTime, require_pyarrow
from tierd.sizes import human_size

if TYPE_CHECKING:  # pyarrow is an extra
    from tierd.exporting import ExportedRange, ExportJob, ExportProgress

_FILE_BYTES = "256MiB"


def export(
    patterns: TopicPatternsArgument,
    *,
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            metavar="DIR",
            help="Directory of the files: new, empty, or that of an earlier run.",
            file_okay=False,
            resolve_path=True,
        ),
    ],
    format: Annotated[  # noqa: A002 - the option is --format
        ExportFormat, typer.Option("--format", help="Format of the files.")
    ] = ExportFormat.PARQUET,
    from_offset: Annotated[
        int | None, typer.Option("--from", min=0, metavar="O", help="First offset; default: the log start.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", metavar="T", help="Begin with the first record at or after T, in each partition."),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to", min=0, metavar="O", help="Last offset, inclusive; default: the end.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="T", help="End before the first record at or after T, in each partition."),
    ] = None,
    committed: Annotated[
        bool,
        typer.Option("--committed/--uncommitted", help="Leave out aborted and undecided transactions, or keep them."),
    ] = True,
    rows_per_file: Annotated[
        int | None, typer.Option("--rows-per-file", min=1, metavar="N", help="Most records of a file.")
    ] = None,
    bytes_per_file: Annotated[
        str, typer.Option("--bytes-per-file", metavar="SIZE", help="Size at which a file ends, about.")
    ] = _FILE_BYTES,
    partitioned_by: Annotated[
        str | None,
        typer.Option(
            "--partitioned-by",
            metavar="LEVELS",
            help="Folders as Hive has them: topic, partition and date, with commas between them.",
        ),
    ] = None,
    cluster_id: ClusterIdOption = None,
    from_bucket: FromBucketOption = False,
    accept_unauthenticated: AcceptUnauthenticatedOption = False,
    dry_run: DryRunOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Write the records of topics to files, local log and tier together. Needs neither a daemon nor a broker.

    A file gets its name when it is complete and on the disk. After an interruption, run the same command again: each
    partition goes on behind its last file, so that no record is lost or written twice. A later run adds what is new.
    Exits with 1 if a partition is not complete. Needs the extra arrow.

    Examples:
        tierd export orders --into /data/orders --dry-run

        tierd export 'orders.*' --into /data/orders --partitioned-by topic,date --from-time 2024-05-01

        tierd export payments --into /data/payments --format jsonl --from 1000 --to 1999
    """
    require_pyarrow()
    require_patterns(patterns)
    request = ExportRequest(
        patterns=tuple(patterns),
        into=into,
        format=format,
        start=_place(from_offset, from_time, "--from", "--from-time"),
        end=_place(None if to_offset is None else to_offset + 1, to_time, "--to", "--to-time"),
        isolation=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
        limits=ExportLimits(rows=rows_per_file, size_bytes=_size_bytes(bytes_per_file)),
        folders=_folders(partitioned_by),
        source=SourceRequest(
            cluster_id=cluster_id, from_bucket=from_bucket, accepts_unauthenticated=accept_unauthenticated
        ),
    )
    deployment = Deployment(begin(config), config)
    _exit_with(run_in_loop(_export(deployment, request, is_plan=dry_run, as_json=as_json)))


async def _export(
    deployment: Deployment, request: ExportRequest, *, is_plan: bool, as_json: bool
) -> "Sequence[ExportedRange]":
    from tierd.exporting import export_job  # noqa: PLC0415 - needs pyarrow

    outcomes: Sequence[ExportedRange] = ()
    async with contextlib.AsyncExitStack() as stack:
        with progress_line("planning") as report_progress:
            job = await stack.enter_async_context(export_job(deployment, request, on_progress=report_progress))
        if not is_plan:
            with progress_bar("exporting") as report_progress:
                outcomes = await job.run(
                    on_progress=lambda at: report_progress(at.offsets_done, at.offset_count, _progress_text(at))
                )
    if as_json:
        print_json(_as_json(job, request, outcomes, is_plan=is_plan))
    elif is_plan:
        _print_plan(job)
    else:
        _print_outcomes(job, outcomes)
    return outcomes


def _progress_text(progress: "ExportProgress") -> str:
    return f"{progress.records} records, {human_size(progress.size_bytes)} in files"


def _print_plan(job: "ExportJob") -> None:
    table = plain_table(("partition", "topic id"), ("from", "to", "offsets", "in the log"), "")
    for plan in job.plans:
        for span in plan.ranges:
            table.add_row(
                str(span.partition),
                plan.topic_id,
                str(span.start_offset),
                str(span.end_offset),
                str(span.offset_count),
                human_size(span.size_bytes),
                "goes on" if job.is_begun(span) else "",
            )
    print_table(table)
    offsets, size_bytes = sum(s.offset_count for s in job.spans), sum(s.size_bytes for s in job.spans)
    print_line(f"at most {offsets} records, about {human_size(size_bytes)} in the log; nothing was written")


def _print_outcomes(job: "ExportJob", outcomes: "Sequence[ExportedRange]") -> None:
    complete = sum(outcome.problem is None for outcome in outcomes)
    records, size_bytes = sum(o.records for o in outcomes), sum(o.size_bytes for o in outcomes)
    files = sum(outcome.files for outcome in outcomes)
    print_line(
        f"{complete} of {len(job.spans)} partitions are complete: this run wrote {records} records, "
        f"{human_size(size_bytes)} in {files} files"
    )


def _as_json(
    job: "ExportJob", request: ExportRequest, outcomes: "Sequence[ExportedRange]", *, is_plan: bool
) -> dict[str, JsonValue]:
    written = {outcome.span.partition: outcome for outcome in outcomes}
    partitions: list[JsonValue] = []
    for plan in job.plans:
        for span in plan.ranges:
            outcome = written.get(span.partition)
            problem = outcome.problem if outcome is not None else None
            partitions.append(
                {
                    "topic": plan.topic,
                    "topic_id": plan.topic_id,
                    "partition": span.partition.partition,
                    "from_offset": span.start_offset,
                    "end_offset": span.end_offset,
                    "log_bytes": span.size_bytes,
                    "goes_on": job.is_begun(span),
                    "next_offset": span.start_offset if outcome is None else outcome.next_offset,
                    "records": 0 if outcome is None else outcome.records,
                    "files": 0 if outcome is None else outcome.files,
                    "file_bytes": 0 if outcome is None else outcome.size_bytes,
                    "problem": "" if problem is None else str(problem),
                    "remedy": "" if problem is None else problem.remedy,
                }
            )
    return {
        "dry_run": is_plan,
        "into": str(request.into),
        "format": request.format.value,
        "isolation": request.isolation.value,
        "partitions": partitions,
    }


def _exit_with(outcomes: "Sequence[ExportedRange]") -> None:
    """Print the problems, and exit with the code of the last one, which has ended the run if any has."""
    problems = [(outcome.span.partition, outcome.problem) for outcome in outcomes if outcome.problem is not None]
    for partition, problem in problems:
        print_error(f"tierd: {partition} is not complete: {problem}")
        if problem.remedy:
            print_error(f"  next: {problem.remedy}")
    if problems:
        code = exit_code_of(problems[-1][1])
        raise typer.Exit(code if code is ExitCode.UNREACHABLE else ExitCode.NO)


def _place(offset: int | None, time: str | None, offset_option: str, time_option: str) -> int | AtTime | None:
    if offset is not None and time is not None:
        raise typer.BadParameter(f"{offset_option} and {time_option} exclude each other; give one")
    return offset if time is None else AtTime(timestamp_ms_of(time))


def _size_bytes(text: str) -> int:
    try:
        size_bytes = parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--bytes-per-file") from error
    if size_bytes is None or size_bytes < 1:
        raise typer.BadParameter(f"{text!r} is no size of a file", param_hint="--bytes-per-file")
    return size_bytes


def _folders(text: str | None) -> tuple[ExportFolder, ...]:
    names = [] if text is None else text.split(",")
    known = ", ".join(folder.value for folder in ExportFolder)
    if not set(names) <= {folder.value for folder in ExportFolder} or len(set(names)) < len(names):
        raise typer.BadParameter(f"{text!r} has to be some of {known}, each once", param_hint="--partitioned-by")
    return tuple(map(ExportFolder, names))
