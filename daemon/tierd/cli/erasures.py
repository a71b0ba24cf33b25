"""Reports of requests to erase keys, for a person who must prove them; shared by the verbs of ``tierd erase``."""

import getpass
import socket
from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from tierd.cli.failures import ExitCode
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_json, print_line
from tierd.serve import ErasureCaches, ErasureReport, ErasureSummary, ErasureVersions

_DONE = "done"
_ENDED = (_DONE, "cancelled")


def print_erasure(report: ErasureReport, *, as_json: bool) -> None:
    """Print a report, as JSON or one fact a line."""
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)


def print_until_done(report: ErasureReport, *, as_json: bool) -> None:
    """Print a report.

    Raises:
        typer.Exit: the request is not done.
    """
    print_erasure(report, as_json=as_json)
    if report.phase != _DONE:
        raise typer.Exit(ExitCode.NO)


def print_erasures(found: Sequence[ErasureSummary]) -> None:
    """Print a table of requests."""
    table = plain_table(("request", "partition", "filed (UTC)", "by", "phase"), ("keys", "erased"), "what it waits for")
    for each in found:
        numbers = str(each.keys), str(each.records_erased)
        filed = _utc(each.requested_at_ms)
        table.add_row(each.request_id, each.partition, filed, each.requested_by, each.phase, *numbers, each.problem)
    if found:
        print_table(table)
    print_line(f"{len(found)} requests, {sum(each.phase not in _ENDED for each in found)} open")


def user_and_host() -> str:
    """Return the user of this process and its host, for the report."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a container's user without a name
        return socket.gethostname()


def _print(report: ErasureReport) -> None:
    print_line(f"request {report.request_id}: {report.phase}")
    if report.problem:
        print_line(f"  waits: {report.problem}")
    print_line(f"  partition: {report.partition} (topic id {report.topic_id})")
    print_line(f"  filed: {_utc(report.requested_at_ms)} UTC by {report.requested_by or 'an unnamed user'}")
    if report.reason:
        print_line(f"  reason: {report.reason}")
    print_line(f"  covers: offsets below {report.end_offset}; the tier ended at {report.tier_end_offset} then")
    print_line(f"  grace: {'none, the request says now' if report.at_once else 'expire.grace'}")
    if report.removes_unread:
        print_line("  removes unread: batches that unpack to more than tierd opens go whole, with all their records")
    print_line(f"  keys: {len(report.key_sha256)}, by their SHA-256")
    for digest in report.key_sha256:
        print_line(f"    {digest}")
    _print_done(report)
    print_line("  not covered:")
    for each in report.not_covered:
        print_line(f"    - {each}")


def _print_done(report: ErasureReport) -> None:
    print_line("  done:")
    for run in report.runs:
        print_line(
            f"    {_utc(run.ended_at_ms)} run {run.run_id}: {run.searched} segments searched, "
            f"{run.rewritten} rewritten, {run.records_erased} records erased"
        )
        for problem in run.problems:
            print_line(f"      problem: {problem}")
    left = report.segments_left
    gone = sum(each.gone_at_ms is not None for each in left)
    if left:
        print_line(f"    {gone} of {len(left)} segments that held, or may have held, a key are gone from the bucket:")
    for each in left:
        when = "still there" if each.gone_at_ms is None else f"gone {_utc(each.gone_at_ms)}"
        print_line(f"      {each.segment_id} offsets {each.start_offset} to {each.end_offset}: {when}")
    _print_proofs(report.versions, report.caches)
    print_line("  phases:")
    for entry in report.history:
        print_line(f"    {_utc(entry.at_ms)} {entry.phase}")


def _print_proofs(versions: ErasureVersions | None, caches: ErasureCaches | None) -> None:
    if versions is not None and versions.attested_by:
        print_line(f"    {_utc(versions.at_ms)} older versions: {versions.attested_by} says: {versions.statement}")
    elif versions is not None:
        print_line(
            f"    {_utc(versions.at_ms)} older versions: none left; {versions.looked_at} looked at, "
            f"{versions.deleted} deleted ({versions.deleted_bytes} bytes)"
        )
    if caches is not None:
        print_line(f"    {_utc(caches.at_ms)} caches of {caches.host}: nothing of {caches.segments} segments")


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
