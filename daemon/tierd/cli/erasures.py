"""The report of a request to erase keys, for a person who must prove it."""

from datetime import UTC, datetime
from typing import cast

from pydantic import JsonValue

from tierd.cli.printing import print_line

Facts = dict[str, JsonValue]


def print_report(facts: Facts) -> None:
    """Print everything that was done, one thing a line."""
    print_line(f"request {facts['request_id']}: {facts['phase']}")
    if facts["problem"]:
        print_line(f"  waits: {facts['problem']}")
    print_line(f"  partition: {facts['partition']} (topic id {facts['topic_id']})")
    print_line(f"  filed: {utc(facts['requested_at_ms'])} UTC by {facts['requested_by'] or 'nobody named'}")
    if facts["reason"]:
        print_line(f"  reason: {facts['reason']}")
    print_line(f"  covers: offsets below {facts['end_offset']}; the tier ended at {facts['tier_end_offset']} then")
    print_line(f"  grace: {'none, the request says now' if facts['at_once'] else 'expire.grace'}")
    if facts["removes_unread"]:
        print_line("  removes unread: batches that unpack to more than tierd opens go whole, with all their records")
    digests = cast("list[str]", facts["key_sha256"])
    print_line(f"  keys: {len(digests)}, by their SHA-256")
    for digest in digests:
        print_line(f"    {digest}")
    _print_done(facts)
    print_line("  not covered:")
    for each in cast("list[str]", facts["not_covered"]):
        print_line(f"    - {each}")


def utc(at_ms: JsonValue) -> str:
    """A time, as it stands in a report."""
    return datetime.fromtimestamp(int(str(at_ms)) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _print_done(facts: Facts) -> None:
    print_line("  done:")
    for run in cast("list[Facts]", facts["runs"]):
        print_line(
            f"    {utc(run['ended_at_ms'])} run {run['run_id']}: {run['searched']} segments searched, "
            f"{run['rewritten']} rewritten, {run['records_erased']} records erased"
        )
        for problem in cast("list[str]", run["problems"]):
            print_line(f"      problem: {problem}")
    left = cast("list[Facts]", facts["segments_left"])
    gone = [each for each in left if each["gone_at_ms"] is not None]
    if left:
        print_line(
            f"    {len(gone)} of {len(left)} segments that held, or may have held, a key are gone from the bucket:"
        )
    for each in left:
        when = "still there" if each["gone_at_ms"] is None else f"gone {utc(each['gone_at_ms'])}"
        print_line(f"      {each['segment_id']} offsets {each['start_offset']} to {each['end_offset']}: {when}")
    _print_proofs(cast("Facts | None", facts["versions"]), cast("Facts | None", facts["caches"]))
    print_line("  phases:")
    for entry in cast("list[Facts]", facts["history"]):
        print_line(f"    {utc(entry['at_ms'])} {entry['phase']}")


def _print_proofs(versions: Facts | None, caches: Facts | None) -> None:
    if versions is not None and versions["attested_by"]:
        print_line(
            f"    {utc(versions['at_ms'])} older versions: {versions['attested_by']} says: {versions['statement']}"
        )
    elif versions is not None:
        print_line(
            f"    {utc(versions['at_ms'])} older versions: none left; {versions['looked_at']} looked at, "
            f"{versions['deleted']} deleted ({versions['deleted_bytes']} bytes)"
        )
    if caches is not None:
        print_line(f"    {utc(caches['at_ms'])} caches of {caches['host']}: nothing of {caches['segments']} segments")
