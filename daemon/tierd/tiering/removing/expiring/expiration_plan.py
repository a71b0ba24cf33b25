"""Expiration as a plan, oldest first, with reasons: pure (remote-tiering 12; Kafka: RLMExpirationTask).

Lineages here are those of the total log, cut off below the log start, as Kafka's leader keeps them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tierd.model import Lineage, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.tiering.removing.expiring.branch_segments import counted_bytes, in_lineage
from tierd.tiering.removing.ledger import DeleteReason

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


class PlannedDeletion(NamedTuple):
    """Segment to delete, with the reason, and the numbers behind the reason for people."""

    metadata: RemoteLogSegmentMetadata
    reason: DeleteReason
    detail: str


@dataclass(frozen=True, slots=True)
class ExpirationPlan:
    """Deletions that are due now.

    Attributes:
        deletions: each segment once, oldest first.
        new_log_start_offset: to be pushed, durably, before the first deletion; None leaves the log start where it is.
        next_due_ms: wall clock at which time alone brings more to do; None when only an event can.
        blocked_by: the segment at which the scan ended, None when it reached the end: nothing newer is looked at.
    """

    deletions: tuple[PlannedDeletion, ...] = ()
    new_log_start_offset: int | None = None
    next_due_ms: int | None = None
    blocked_by: UUID | None = None


@dataclass(frozen=True, slots=True)
class SizeRule:
    """Breach of the retention by size (Kafka: RetentionSizeData).

    Raises:
        ValueError: a negative limit, or nothing above it.
    """

    retention_bytes: int
    breach_bytes: int

    def __post_init__(self) -> None:
        if self.retention_bytes < 0 or self.breach_bytes <= 0:
            raise ValueError(f"no breach: {self.breach_bytes} bytes above a limit of {self.retention_bytes}")


@dataclass(frozen=True, slots=True)
class TimeRule:
    """Rule of the retention by time (Kafka: RetentionTimeData): segments as old as ``cutoff_ms`` go.

    Raises:
        ValueError: a negative limit or cutoff.
    """

    retention_ms: int
    cutoff_ms: int

    def __post_init__(self) -> None:
        if self.retention_ms < 0 or self.cutoff_ms < 0:
            raise ValueError(f"no rule: retention {self.retention_ms} ms, cutoff {self.cutoff_ms} ms")


def plan_expiration(
    rows: Iterable[RemoteLogSegmentMetadata],
    list_epoch: Callable[[int], Sequence[RemoteLogSegmentMetadata]],
    *,
    lineage: Lineage,
    log_start_offset: int,
    log_end_offset: int,
    only_local_bytes: int,
    retention_ms: int,
    retention_bytes: int,
    being_copied: Collection[UUID],
    now_ms: int,
    covered: Collection[UUID] = (),
) -> ExpirationPlan:
    """Choose what leaves the tier now (remote-tiering 12.1 to 12.5).

    Args:
        rows: every row of the partition, in any state.
        list_epoch: the rows of one epoch, ascending by start offset.
        lineage: unfiltered; of the total log, cut off below the log start.
        log_start_offset: first offset of the total log.
        log_end_offset: exclusive; an offset that the log surely reaches will do: a lower one deletes less.
        only_local_bytes: bytes that are in no finished remote segment.
        retention_ms: -1 for no rule.
        retention_bytes: -1 for no rule.
        being_copied: ids that a task of this process works on; they and everything later stay.
        now_ms: wall clock.
        covered: ids of finished segments for all of whose offsets readers use others. These segments go, and retention
            does not count them.
    """
    rows, list_epoch = tuple(rows), _without(covered, list_epoch)
    sizes = counted_bytes(list_epoch, lineage=lineage, log_end_offset=log_end_offset) if retention_bytes >= 0 else {}
    scan = _Scan(
        lineage=lineage,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        time=_time_rule(retention_ms, now_ms),
        size=_size_rule(only_local_bytes + sum(sizes.values()), retention_bytes),
        sizes=sizes,
        being_copied=being_copied,
    )
    kept = scan.run(list_epoch)
    retried, waiting_ms = _deletions_begun(rows, being_copied, now_ms)
    unreferenced = _unreferenced(rows, lineage, being_copied)
    due = [waiting_ms, None if kept is None else _expires_at(kept, retention_ms, being_copied)]
    return ExpirationPlan(
        deletions=_once(retried, scan.chosen, unreferenced, _covered(rows, covered, being_copied)),
        new_log_start_offset=scan.new_start if (scan.new_start or 0) > log_start_offset else None,
        next_due_ms=min((ms for ms in due if ms is not None), default=None),
        blocked_by=None if kept is None else kept.segment.id,
    )


def _without(
    covered: Collection[UUID], list_epoch: Callable[[int], Sequence[RemoteLogSegmentMetadata]]
) -> Callable[[int], Sequence[RemoteLogSegmentMetadata]]:
    if not covered:
        return list_epoch
    return lambda epoch: [metadata for metadata in list_epoch(epoch) if metadata.segment.id not in covered]


def _covered(
    rows: Iterable[RemoteLogSegmentMetadata], covered: Collection[UUID], being_copied: Collection[UUID]
) -> list[PlannedDeletion]:
    detail = "readers use another segment for all of its offsets"
    return [
        PlannedDeletion(metadata, DeleteReason.COVERED, detail)
        for metadata in rows
        if metadata.segment.id in covered and metadata.segment.id not in being_copied
    ]


def _time_rule(retention_ms: int, now_ms: int) -> TimeRule | None:
    """Return the rule; None without a limit, and for a limit that reaches back beyond the epoch."""
    if retention_ms < 0 or now_ms < retention_ms:
        return None
    return TimeRule(retention_ms, now_ms - retention_ms)


def _size_rule(total_bytes: int, retention_bytes: int) -> SizeRule | None:
    if retention_bytes < 0 or total_bytes <= retention_bytes:
        return None
    return SizeRule(retention_bytes, total_bytes - retention_bytes)


@dataclass
class _Scan:
    """Walk along the lineage (remote-tiering 12.2), which ends at the first segment of our branch that is kept."""

    lineage: Lineage
    log_start_offset: int
    log_end_offset: int
    time: TimeRule | None
    size: SizeRule | None
    sizes: Mapping[UUID, int]  # bytes that count, of finished segments, while a rule by size may apply
    being_copied: Collection[UUID]
    chosen: list[PlannedDeletion] = field(default_factory=list)
    new_start: int | None = None

    def run(self, list_epoch: Callable[[int], Sequence[RemoteLogSegmentMetadata]]) -> RemoteLogSegmentMetadata | None:
        """Fill ``chosen`` and ``new_start``; return the segment that ended the walk, None when nothing did."""
        filtered = self.lineage.with_data()
        breach = self.size.breach_bytes if self.size else 0
        seen: set[UUID] = set()
        for entry in filtered.entries:
            for metadata in list_epoch(entry.epoch):
                if metadata.segment.id in self.being_copied:
                    return metadata
                if metadata.segment.id in seen or metadata.state not in (_STARTED, _FINISHED):
                    continue
                size_bytes = self.sizes.get(metadata.segment.id, metadata.size_bytes)
                if self._breaches_start(metadata, filtered):
                    self._choose(metadata, DeleteReason.START_OFFSET, f"log start {self.log_start_offset}")
                    if metadata.state is _FINISHED and in_lineage(metadata, self.log_end_offset, filtered):
                        # Kafka counts it and lets others go for it too, which leaves less than the limit.
                        breach = max(0, breach - size_bytes)
                elif not in_lineage(metadata, self.log_end_offset, filtered):
                    continue  # another branch's: stepped over
                elif self.time is not None and _is_old(metadata, self.time):
                    self._expire(metadata, DeleteReason.RETENTION_TIME, self._of_age(metadata, self.time))
                    breach = max(0, breach - size_bytes)
                elif self.size is not None and breach > 0 and breach >= size_bytes:
                    self._expire(metadata, DeleteReason.RETENTION_BYTES, f"{breach} bytes above the limit")
                    breach -= size_bytes
                else:
                    return metadata
                seen.add(metadata.segment.id)
        return None

    def _breaches_start(self, metadata: RemoteLogSegmentMetadata, filtered: Lineage) -> bool:
        first = filtered.entries[0].epoch
        below = all(entry.epoch <= first for entry in metadata.segment_leader_epochs)
        return below and metadata.end_offset < self.log_start_offset

    def _expire(self, metadata: RemoteLogSegmentMetadata, reason: DeleteReason, detail: str) -> None:
        """Choose a segment and move the log start behind it; a copy that was never finished moves no log start."""
        self._choose(metadata, reason, detail)
        if metadata.state is _FINISHED:
            self.new_start = max(self.new_start or 0, metadata.end_offset + 1)

    def _choose(self, metadata: RemoteLogSegmentMetadata, reason: DeleteReason, detail: str) -> None:
        if metadata.state is _STARTED:
            reason, detail = DeleteReason.DANGLING, f"an unfinished copy, reached by {reason}: {detail}"
        self.chosen.append(PlannedDeletion(metadata, reason, detail))

    @staticmethod
    def _of_age(metadata: RemoteLogSegmentMetadata, rule: TimeRule) -> str:
        if _is_empty(metadata):
            return "compaction left no record in it"
        older_ms = rule.cutoff_ms - _newest_ms(metadata)
        return f"newest record {older_ms / 1000:.0f} s past the {rule.retention_ms / 1000:g} s of retention"


def _deletions_begun(
    rows: Iterable[RemoteLogSegmentMetadata], being_copied: Collection[UUID], now_ms: int
) -> tuple[list[PlannedDeletion], int | None]:
    """Return the deletions to continue now, and when the next one is due."""
    due: list[PlannedDeletion] = []
    waiting: list[int] = []
    for metadata in rows:
        if metadata.state is not _DELETING or metadata.segment.id in being_copied:
            continue
        soft = metadata.soft_delete
        if soft is None:
            due.append(PlannedDeletion(metadata, DeleteReason.DELETE_RETRY, "its deletion was begun"))
        elif soft.delete_after_ms <= now_ms:
            detail = f"{soft.reason}, and its grace is over"
            due.append(PlannedDeletion(metadata, DeleteReason.DELETE_RETRY, detail))
        else:
            waiting.append(soft.delete_after_ms)
    return due, min(waiting, default=None)


def _unreferenced(
    rows: Iterable[RemoteLogSegmentMetadata], lineage: Lineage, being_copied: Collection[UUID]
) -> list[PlannedDeletion]:
    """Return the segments all of whose epochs lie before the lineage (remote-tiering 12.5)."""
    earliest = lineage.earliest
    if earliest is None:
        return []
    found = []
    for metadata in rows:
        if metadata.state not in (_STARTED, _FINISHED) or metadata.segment.id in being_copied:
            continue
        if all(entry.epoch < earliest.epoch for entry in metadata.segment_leader_epochs):
            detail = f"the log begins with leader epoch {earliest.epoch}"
            reason = DeleteReason.UNREFERENCED_EPOCH if metadata.state is _FINISHED else DeleteReason.DANGLING
            found.append(PlannedDeletion(metadata, reason, detail))
    return found


def _once(*groups: Iterable[PlannedDeletion]) -> tuple[PlannedDeletion, ...]:
    """Return every segment once, by start offset; of equal starts in the order given."""
    by_id: dict[UUID, PlannedDeletion] = {}
    for group in groups:
        for planned in group:
            by_id.setdefault(planned.metadata.segment.id, planned)
    return tuple(sorted(by_id.values(), key=lambda planned: planned.metadata.start_offset))


def _expires_at(kept: RemoteLogSegmentMetadata, retention_ms: int, being_copied: Collection[UUID]) -> int | None:
    if retention_ms < 0 or kept.segment.id in being_copied:
        return None
    return _newest_ms(kept) + retention_ms


def _is_old(metadata: RemoteLogSegmentMetadata, rule: TimeRule) -> bool:
    """Return True if the segment is past retention; an empty one always is, so that it keeps no segment behind it."""
    return _is_empty(metadata) or _newest_ms(metadata) <= rule.cutoff_ms


def _is_empty(metadata: RemoteLogSegmentMetadata) -> bool:
    return metadata.state is _FINISHED and not metadata.size_bytes


def _newest_ms(metadata: RemoteLogSegmentMetadata) -> int:
    """Return the largest timestamp of the segment; for records without one, the time of its copy."""
    return metadata.max_timestamp_ms if metadata.max_timestamp_ms >= 0 else metadata.event_timestamp_ms
