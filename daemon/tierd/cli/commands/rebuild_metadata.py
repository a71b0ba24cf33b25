"""``tierd rebuild-metadata``: the metadata from the bucket alone."""

import json
import sys
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.text import Text

from tierd.app import rebuild_metadata as rebuild
from tierd.app import run_in_loop
from tierd.cli.display import answer_console
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from tierd.cli.progress import progress_line
from tierd.cli.session import begin
from tierd.tiering import RebuildReport


def rebuild_metadata(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be rebuilt.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the metadata of the tier from the bucket's manifests into the configured, empty metadata store.

    For when the metadata store is lost. Interrupted, the same command goes on. A store that has segments is compared
    with the bucket and not written to: exit code 4 when it differs. Exit code 1 when something in the bucket is damaged
    or in conflict; everything else is rebuilt nevertheless. No daemon may run meanwhile.

    Example: tierd rebuild-metadata --dry-run
    """
    settings = begin(config)
    with progress_line("rebuilding") as tell:
        report = run_in_loop(rebuild(settings, config, dry_run=dry_run, tell=tell))
    if as_json:
        print(json.dumps(_as_json(report, dry_run=dry_run)))
    else:
        _print(report, dry_run=dry_run)
    if report.differing:
        raise typer.Exit(ExitCode.REFUSED)
    if not report.is_sound:
        raise typer.Exit(ExitCode.NO)


def _print(report: RebuildReport, *, dry_run: bool) -> None:
    console = answer_console()
    for problem in report.problems:
        line = f"{problem.severity.value} {problem.kind}: {problem.where}: {problem.what}"
        console.print(Text(line), soft_wrap=True)
    for difference in report.differing:
        console.print(Text(f"differs: {difference}"), soft_wrap=True)
    done = f"{report.unchanged} are in the metadata store already, {report.written} were written"
    if dry_run:
        done = f"{report.unchanged} are in the metadata store already, nothing was written"
    print(f"{report.segments} segments of {report.partitions} partitions, {report.deleting} more being deleted; {done}")
    if report.differing:
        print("tierd: the metadata store has segments and differs from the bucket; it was not changed", file=sys.stderr)
        print("  next: name an empty metadata store, or run tierd verify on this one", file=sys.stderr)


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
