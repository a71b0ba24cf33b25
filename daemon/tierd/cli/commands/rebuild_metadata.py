"""``tierd rebuild-metadata``: rebuild the metadata from the bucket alone."""

from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, run_in_loop
from tierd.app import rebuild_metadata as rebuild
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, AcceptUnauthenticatedOption, ConfigOption, JsonOption
from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.cli.output.progress_line import progress_line
from tierd.cli.session import begin
from tierd.tiering import RebuildReport


def rebuild_metadata(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be rebuilt.")] = False,
    accept_unauthenticated: AcceptUnauthenticatedOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the metadata of the tier from the bucket's manifests into the configured, empty metadata store.

    Use it when the metadata store is lost. After an interruption, run the same command again. A store that has segments
    is compared with the bucket and not changed: exit code 4 if they differ. Exit code 1 if an object is damaged
    or in conflict; everything else is rebuilt. Stop the daemon first. Requests to erase keys are restored from their
    reports; a request that was not done has lost its keys and is named, with exit code 1.

    With a key ring, an object without a proof that a tierd with the ring wrote it is a conflict and is not used, for
    example plain segments from before the encryption, and tombstones and log starts of earlier versions.

    Example: tierd rebuild-metadata --dry-run
    """
    deployment = Deployment(begin(config), config)
    with progress_line("rebuilding") as report_progress:
        rebuilding = rebuild(
            deployment, dry_run=dry_run, accepts_unauthenticated=accept_unauthenticated, on_progress=report_progress
        )
        report = run_in_loop(rebuilding)
    if as_json:
        print_json(_as_json(report, dry_run=dry_run))
    else:
        _print(report, dry_run=dry_run)
    if report.differing:
        raise typer.Exit(ExitCode.REFUSED)
    if not report.is_sound:
        raise typer.Exit(ExitCode.NO)


def _print(report: RebuildReport, *, dry_run: bool) -> None:
    for problem in report.problems:
        line = f"{problem.severity.value} {problem.kind}: {problem.where}: {problem.what}"
        print_line(line)
    for difference in report.differing:
        print_line(f"differs: {difference}")
    done = f"{report.unchanged} are in the metadata store already, {report.written} were written"
    if dry_run:
        done = f"{report.unchanged} are in the metadata store already, nothing was written"
    print_line(
        f"{report.segments} segments of {report.partitions} partitions, {report.deleting} more being deleted; {done}"
    )
    if report.erasures:
        restored = "would be" if dry_run else "were"
        print_line(f"{report.erasures} requests to erase keys {restored} filed again from their reports in the bucket")
    if report.has_unauthenticated:
        print_error("tierd: some objects are not authenticated; their content is not in the metadata")
        print_error(
            "  next: find out which of them tierd wrote, before a daemon starts; then, into an empty metadata store, "
            "tierd rebuild-metadata --accept-unauthenticated"
        )
    if report.differing:
        print_error("tierd: the metadata store has segments and differs from the bucket; it was not changed")
        print_error("  next: name an empty metadata store, or run tierd verify on this one")


def _as_json(report: RebuildReport, *, dry_run: bool) -> dict[str, JsonValue]:
    return {
        "dry_run": dry_run,
        "store_id": None if report.store_id is None else str(report.store_id),
        "partitions": report.partitions,
        "segments": report.segments,
        "deleting": report.deleting,
        "written": report.written,
        "unchanged": report.unchanged,
        "differing": list(report.differing),
        "erasures": report.erasures,
        "problems": [
            {
                "severity": problem.severity.value,
                "kind": problem.kind,
                "where": problem.where,
                "what": problem.what,
            }
            for problem in report.problems
        ],
    }
