"""Plan of an undelete: segments in their order, and what speaks against each; decisions only (DESIGN 4)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tierd.errors import RefusedError, RemoteResourceNotFoundError
from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, uuid_to_text
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts, partition_expiration
from tierd.tiering.removing.ledger import DeleteReason
from tierd.tiering.topic_policy import FindTopicPolicy

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_NEVER_LOWERS = frozenset({DeleteReason.UNREFERENCED_EPOCH.value})
COMPACTED_SINCE: Final = "what follows it was compacted since: deleted keys would be back whose tombstones are gone"
_ONLY_BY_ID = frozenset({DeleteReason.DIVERGED.value, DeleteReason.COVERED.value})


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Segment that comes back.

    Attributes:
        metadata: its row as it was: being deleted.
        log_start_offset: the log start once the segment is back; None where the log start does not change.
        problem: the reason against it; empty without a problem. A segment with a problem comes back only by ``force``.
    """

    metadata: RemoteLogSegmentMetadata
    log_start_offset: int | None
    problem: str = ""


def plan_undelete(
    view: PartitionView,
    local: LocalFacts,
    policies: FindTopicPolicy,
    wanted: Collection[UUID] | None,
    *,
    now_ms: int,
    retained: Callable[[RemoteLogSegmentId], bool] = lambda _: False,
) -> tuple[TakenBack, ...]:
    """Choose the segments that come back, newest first, so that the log is without holes after each of them.

    Args:
        view: the partition's metadata.
        local: its local log.
        policies: says whether a segment would be deleted again at once.
        wanted: ids, None for everything in its grace but what was replaced, what longer copies cover, or what the log
            lost.
        now_ms: wall clock.
        retained: returns True if the store keeps a segment's objects, whatever any broker does.

    Raises:
        RemoteResourceNotFoundError: a wanted segment is unknown, gone, or not being deleted.
        RefusedError: the whole partition is being deleted, or a wanted segment was replaced.
    """
    partition = view.partition
    if view.delete_state is not None:
        raise RefusedError(
            f"{partition} is {view.delete_state.name}: none of it comes back",
            remedy="restore the partition from its objects before their grace is over",
        )
    back = _chosen(view, wanted)
    starts = _log_starts(view, back)
    again = _deleted_again(view, local, policies, starts, now_ms=now_ms)
    covered = view.log_start_offset or 0
    is_compacted = "compact" in policies(partition.topic).cleanup_policy
    readable = [m for m in view.list() if m.state is _FINISHED]
    taken = []
    for metadata in back:
        soft = metadata.soft_delete
        assert soft is not None, "only these are chosen"
        problem = ""
        if soft.reason == DeleteReason.START_OFFSET:
            problem = "it lies below a log start that was moved, by a request to delete records or before a restart"
        elif soft.reason == DeleteReason.DIVERGED:
            problem = "the local log lost these records and may have others in their place, which it would hide"
        elif soft.reason in _NEVER_LOWERS:
            problem = "its leader epochs are not of this log any more: no reader would find it"
        elif soft.delete_after_ms <= now_ms and not retained(metadata.segment):
            problem = "its grace is over: another broker may be removing its objects at this moment"
        elif metadata.segment.id in again:
            problem = f"retention would delete it again at once: {again[metadata.segment.id]}"
        elif is_compacted and is_compacted_since(view, metadata):
            problem = COMPACTED_SINCE
        elif metadata.end_offset + 1 < covered and not _bridged(readable, metadata.end_offset + 1, covered):
            problem = f"offsets {metadata.end_offset + 1} to {covered - 1} would be missing behind it"
        start = starts[metadata.segment.id]
        covered = covered if start is None else start
        readable.append(metadata)
        taken.append(TakenBack(metadata, start, problem))
    return tuple(taken)


def refuse(planned: Sequence[TakenBack], *, force: bool) -> None:
    """Raise if a planned segment has a problem, unless ``force``.

    Raises:
        RefusedError: names the first such segment.
    """
    for each in planned:
        if each.problem and not force:
            raise refusal(each.metadata, each.problem)


def refusal(metadata: RemoteLogSegmentMetadata, problem: str) -> RefusedError:
    """Return the error for a segment that does not come back without ``force``."""
    return RefusedError(
        f"{metadata.segment} (offsets {metadata.start_offset} to {metadata.end_offset}): {problem}",
        remedy="raise the topic's retention first, and tierd sync; or --force for another grace",
    )


def _chosen(view: PartitionView, wanted: Collection[UUID] | None) -> list[RemoteLogSegmentMetadata]:
    in_grace = {m.segment.id: m for m in view.list() if m.state is _DELETING and m.soft_delete is not None}
    missing = sorted(uuid_to_text(each) for each in wanted or () if each not in in_grace)
    if missing:
        raise RemoteResourceNotFoundError(
            f"{view.partition}: {', '.join(missing)} cannot be taken back: gone, unknown, or not being deleted",
            remedy=f"tierd segments {view.partition} lists what is DELETE_SEGMENT_STARTED, tierd deletions what went",
        )
    for segment_id in wanted or ():
        _require_not_replaced(view, in_grace[segment_id])
    chosen = [m for id_, m in in_grace.items() if (id_ in wanted if wanted is not None else not _is_history(m))]
    return sorted(chosen, key=lambda m: (m.end_offset, m.start_offset), reverse=True)


def _is_history(metadata: RemoteLogSegmentMetadata) -> bool:
    """Return whether a segment comes back only by its id: readers have others, or the log lost its records."""
    soft = metadata.soft_delete
    return _is_replaced(metadata) or (soft is not None and soft.reason in _ONLY_BY_ID)


def _is_replaced(metadata: RemoteLogSegmentMetadata) -> bool:
    return metadata.soft_delete is not None and metadata.soft_delete.is_replaced


def is_compacted_since(view: PartitionView, metadata: RemoteLogSegmentMetadata) -> bool:
    """Return True if a run took records out of later segments after ``metadata`` had gone, those that hide its own too.

    The inputs of such a run are still there, for their grace ends after that of ``metadata``.
    """
    return any(
        _is_replaced(each)
        and each.start_offset > metadata.end_offset
        and each.event_timestamp_ms >= metadata.event_timestamp_ms
        for each in view.list()
    )


def _require_not_replaced(view: PartitionView, metadata: RemoteLogSegmentMetadata) -> None:
    """Raise if the segment was replaced: its records would be there twice, and removed ones would be back."""
    if _is_replaced(metadata):
        output = view.segment_for(metadata.segment_leader_epochs[-1].epoch, metadata.end_offset)
        where = f": {output.segment} has its offsets now" if output is not None else ""
        raise RefusedError(
            f"{metadata.segment} (offsets {metadata.start_offset} to {metadata.end_offset}) was replaced by a "
            f"compaction or merge{where}",
            remedy="nothing to do: what was kept of it is readable; what compaction took out is not taken back",
        )


def _log_starts(view: PartitionView, back: Sequence[RemoteLogSegmentMetadata]) -> dict[UUID, int | None]:
    """Return the log start after each of them came back; None where it stays."""
    present = view.log_start_offset
    starts: dict[UUID, int | None] = {}
    for metadata in back:
        reason = metadata.soft_delete.reason if metadata.soft_delete else ""
        first = metadata.first_readable_offset
        lowers = present is not None and first < present and reason not in _NEVER_LOWERS
        starts[metadata.segment.id] = first if lowers else None
        if lowers:
            present = first
    return starts


def _deleted_again(
    view: PartitionView, local: LocalFacts, policies: FindTopicPolicy, starts: Mapping[UUID, int | None], *, now_ms: int
) -> dict[UUID, str]:
    """Return the segments that the next run of expiration would choose, and why, if all of them were back."""
    after = view
    for segment_id, log_start_offset in starts.items():
        metadata = view.segments[segment_id]
        update = metadata.advance(_FINISHED, event_timestamp_ms=now_ms, broker_id=metadata.broker_id)
        after = after.with_undeleted(update, log_start_offset=log_start_offset).view
    plan = partition_expiration(after, local, policies(view.partition.topic), being_copied=(), now_ms=now_ms)
    return {p.metadata.segment.id: f"{p.reason}, {p.detail}" for p in plan.deletions}


def _bridged(readable: Sequence[RemoteLogSegmentMetadata], start: int, end: int) -> bool:
    """Return True if ``readable`` holds every offset from ``start`` up to, and not including, ``end``."""
    reached = start
    for metadata in sorted(readable, key=lambda m: m.first_readable_offset):
        if metadata.first_readable_offset <= reached:
            reached = max(reached, metadata.end_offset + 1)
    return reached >= end
