"""Reasons why a request does not get on, in words for people. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

from tierd.model import RemoteLogSegmentMetadata, uuid_to_text
from tierd.pipeline.erasing.erase_request import EraseRequest
from tierd.pipeline.erasing.outlook import Outlook


def what_is_in_the_way(request: EraseRequest, outlook: Outlook, *, now_ms: int) -> str:
    """Return the first thing that has to happen before ``request`` leaves its phase; empty when there is none."""
    if outlook.unsearched:
        return _unsearched(request, outlook.unsearched)
    if outlook.unreachable:
        return (
            f"{_some(outlook.unreachable)} may hold a key, and no run can read it, as no reader can: it lies below the "
            "log start, is of a branch of the log that was given up, or a longer copy covers it; it goes by "
            "expiration: tierd expire --once"
        )
    if outlook.missing_from is not None:
        return (
            f"offsets {outlook.missing_from} to {request.end_offset - 1} are in the broker's log alone: they are "
            "erased once they are in the tier, which takes until the broker rolls its segment and tierd copies it"
        )
    if outlook.leaving:
        return _leaving(outlook.leaving, now_ms=now_ms)
    if outlook.under_way:
        return f"{_some(outlook.under_way)} was begun and is neither finished nor given up yet"
    return ""


def _unsearched(request: EraseRequest, unsearched: Sequence[RemoteLogSegmentMetadata]) -> str:
    last = request.runs[-1] if request.runs else None
    why = f"; the last run says: {last.problems[0]}" if last is not None and last.problems else ""
    return f"{_some(unsearched)} is to be looked through by a run: tierd compact --once, or the next scheduled one{why}"


def _leaving(leaving: Sequence[RemoteLogSegmentMetadata], *, now_ms: int) -> str:
    ends_ms = [each.soft_delete.delete_after_ms for each in leaving if each.soft_delete is not None]
    last_ms = max(ends_ms, default=now_ms)
    if last_ms <= now_ms:
        return f"{_some(leaving)} is to be removed by the next expiration: tierd expire --once"
    when = datetime.fromtimestamp(last_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{_some(leaving)} is in its grace until {when} UTC"


def _some(segments: Sequence[RemoteLogSegmentMetadata]) -> str:
    first = segments[0]
    named = f"segment {uuid_to_text(first.segment.id)} (offsets {first.start_offset} to {first.end_offset})"
    return named if len(segments) == 1 else f"{named}, and {len(segments) - 1} more,"
