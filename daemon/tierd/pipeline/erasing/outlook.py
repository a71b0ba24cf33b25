"""Outlook: the segments that still block a request, from metadata alone, and the next phase. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from tierd.metadata import PartitionView
from tierd.model import OffsetRange, RemoteLogSegmentMetadata, RemoteLogSegmentState, uuid_to_text
from tierd.pipeline.erasing.erase_request import ErasePhase, EraseRequest, LeftSegment
from tierd.pipeline.planning import Candidate, Chain

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Segments that may hold a key, by what has to happen to them.

    Attributes:
        unsearched: readable segments that a run has to search.
        unreachable: finished segments of another branch of the log, below its start, or covered by a longer copy: no
            run and no reader reads such a segment. Expiration removes it.
        leaving: segments that are being deleted for any reason; their objects are still there.
        under_way: segments that were begun, and are neither finished nor abandoned.
        missing: first offsets of the request that the tier lacks and that come into it later; None without any.
    """

    unsearched: tuple[RemoteLogSegmentMetadata, ...] = ()
    unreachable: tuple[RemoteLogSegmentMetadata, ...] = ()
    leaving: tuple[RemoteLogSegmentMetadata, ...] = ()
    under_way: tuple[RemoteLogSegmentMetadata, ...] = ()
    missing: OffsetRange | None = None

    @property
    def replaced(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return the leaving segments that an output has replaced, which cannot be undeleted."""
        return tuple(each for each in self.leaving if each.soft_delete is not None and each.soft_delete.is_replaced)

    @property
    def is_searched(self) -> bool:
        """Return True if no finished segment may hold a key, and the tier has every offset of the request."""
        return not self.unsearched and not self.unreachable and self.missing is None

    @property
    def has_left(self) -> bool:
        """Return True if no segment that may hold a key is being deleted or is under way, as far as metadata knows."""
        return not self.leaving and not self.under_way


def outlook_of(request: EraseRequest, candidate: Candidate) -> Outlook:
    """Sort the segments of a partition by what a request still needs of them. Slow: it reads every row."""
    view, chain = candidate.view, candidate.chain()
    reachable = {metadata.segment.id for metadata in chain.segments}
    concerned = sorted(filter(request.concerns, view.list()), key=lambda metadata: metadata.start_offset)
    finished = [metadata for metadata in concerned if metadata.state is _FINISHED]
    return Outlook(
        unsearched=tuple(metadata for metadata in finished if metadata.segment.id in reachable),
        unreachable=tuple(metadata for metadata in finished if metadata.segment.id not in reachable),
        leaving=tuple(metadata for metadata in concerned if metadata.state is _DELETING),
        under_way=tuple(metadata for metadata in concerned if metadata.state is _STARTED),
        missing=_missing(request, candidate, chain),
    )


def _missing(request: EraseRequest, candidate: Candidate, chain: Chain) -> OffsetRange | None:
    """Return the first offsets of a request that are in the local log alone: in a hole of the tier, or behind it."""
    hole, last = chain.missing if candidate.is_copied else None, request.end_offset - 1
    if hole is not None and hole.start <= last:
        return OffsetRange(hole.start, min(hole.end, last))
    reached = max(chain.end_offset, candidate.view.log_start_offset or 0)
    return OffsetRange(reached, last) if reached <= last else None


def left_segments(request: EraseRequest, view: PartitionView) -> tuple[LeftSegment, ...]:
    """Return the segments that may hold a key and are not read any more: being deleted, or gone since the request.

    Segments that the request lists, and of which the metadata has no trace any more, are added by ``gone_now``.
    """
    leaving = [LeftSegment.of(each) for each in view.list() if each.state is _DELETING and request.concerns(each)]
    gone = [
        LeftSegment.of(each, gone_at_ms=each.event_timestamp_ms)
        for each in view.tombstones.values()
        if each.event_timestamp_ms >= request.requested_at_ms and request.concerns(each)
    ]
    return (*leaving, *gone)


def gone_before(request: EraseRequest, view: PartitionView) -> tuple[LeftSegment, ...]:
    """Return the segments that may have held a key and have a tombstone, but are not among ``request.left``.

    They were gone when the request was filed. No phase waits for such segments, but a cache may still hold parts of
    them.
    """
    known = {each.id for each in request.left}
    gone = (each for each in view.tombstones.values() if each.segment.id not in known and request.concerns(each))
    return tuple(LeftSegment.of(each, gone_at_ms=each.event_timestamp_ms) for each in gone)


def gone_now(request: EraseRequest, view: PartitionView, *, now_ms: int) -> EraseRequest:
    """Return the request with its left segments as they are now, and when each was first found to be gone."""
    found = {each.id: each for each in left_segments(request, view)}
    for each in request.left:
        if each.id not in found and each.id not in view.segments and each.gone_at_ms is None:
            tombstone = view.tombstones.get(each.id)
            at_ms = now_ms if tombstone is None else tombstone.event_timestamp_ms
            found[each.id] = replace(each, gone_at_ms=at_ms)
    return request.seen(found.values())


def next_phase(
    phase: ErasePhase, *, is_searched: bool, has_left: bool, versions_clear: bool, caches_clear: bool
) -> ErasePhase:
    """Return the first phase whose condition is not met; an end stays an end."""
    if phase.is_end:
        return phase
    if not is_searched:
        return ErasePhase.SEARCHING
    if not has_left:
        return ErasePhase.LEAVING
    if not versions_clear:
        return ErasePhase.VERSIONS
    return ErasePhase.DONE if caches_clear else ErasePhase.CACHES


@dataclass(frozen=True, slots=True)
class SearchWork:
    """Search that the next run over a partition does for its open requests.

    Attributes:
        keys: keys of every open request that has a segment to search.
        searched: ids of segments that none of those requests needs searched.
        removes_unread: True if one of those requests wants batches removed that cannot be opened; the run then removes
            all such batches.
    """

    keys: frozenset[bytes] = frozenset()
    searched: frozenset[UUID] = frozenset()
    removes_unread: bool = False


def search_work(requests: Iterable[EraseRequest], candidate: Candidate) -> SearchWork:
    """Combine the open requests of one partition."""
    reachable = candidate.chain().segments  # called once: the chain is made of every row, and requests may be many
    waiting = [request for request in requests if request.is_open and any(map(request.concerns, reachable))]
    if not waiting:
        return SearchWork()
    keys = frozenset[bytes]().union(*(request.keys for request in waiting))
    unconcerned = (row for row in candidate.view.list() if not any(request.concerns(row) for request in waiting))
    removes_unread = any(request.removes_unread for request in waiting)
    return SearchWork(keys, frozenset(row.segment.id for row in unconcerned), removes_unread)


def obstacle_of(request: EraseRequest, outlook: Outlook, *, now_ms: int) -> str:
    """Return the first event, in words, that has to happen before ``request`` leaves its phase; empty without one."""
    if outlook.unsearched:
        return _unsearched(request, outlook.unsearched)
    if outlook.unreachable:
        return (
            f"{_some(outlook.unreachable)} may hold a key, and no run can read it, as no reader can: it lies below the "
            "log start, is of a branch of the log that was given up, or a longer copy covers it; it goes by "
            "expiration: tierd expire --once"
        )
    if outlook.missing is not None:
        return (
            f"offsets {outlook.missing.start} to {outlook.missing.end} are in the broker's log alone: they are "
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
