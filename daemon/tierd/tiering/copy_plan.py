"""Plan of copies: the next segments, their sources, and lost offsets. Pure (remote-tiering 10 and 12.8)."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

from tierd.model import Lineage, OffsetRange, RemoteLogSegmentMetadata, RemoteLogSegmentState


class OffsetSpan(Protocol):
    """Anything that begins at one offset and ends before another."""

    @property
    def base_offset(self) -> int:
        """Return the first offset."""

    @property
    def next_base_offset(self) -> int | None:
        """Return the first offset of the successor, exclusive end; None for the active segment."""


SpanT = TypeVar("SpanT", bound=OffsetSpan)


class CopiedThrough(NamedTuple):
    """The frontier: the last offset known to be in the tier, inclusive, and its epoch; (-1, -1) when nothing is."""

    offset: int
    epoch: int


NOTHING_COPIED = CopiedThrough(-1, -1)


@dataclass(frozen=True, slots=True)
class CopyCandidate(Generic[SpanT]):
    """A rolled segment that is due for copy."""

    segment: SpanT
    end_offset: int  # invariant: end_offset == segment.next_base_offset - 1


def highest_copied(
    lineage: Lineage, copied_offset_for_epoch: Callable[[int], int | None], *, log_end_offset: int
) -> CopiedThrough:
    """Find the frontier along our own lineage (remote-tiering 10.3).

    Args:
        lineage: the epochs and the offsets that they wrote, as this log has them.
        copied_offset_for_epoch: last offset that counts as copied per epoch, what has expired included.
        log_end_offset: exclusive; any offset that the log surely reaches will do, a lower one copies more again.
    """
    for entry in reversed(lineage.entries):
        highest = copied_offset_for_epoch(entry.epoch)
        if highest is None:
            continue
        end = lineage.end_offset_for(entry.epoch, log_end_offset=log_end_offset)
        if end.end_offset <= highest:  # after an unclean election the tier may hold a branch that our log has abandoned
            return CopiedThrough(end.end_offset - 1, end.epoch)
        return CopiedThrough(highest, entry.epoch)
    return NOTHING_COPIED


def first_offset_due(*, copied_through: int, log_start_offset: int) -> int:
    """Return the first offset that has to be in the tier and is not."""
    return max(copied_through + 1, log_start_offset)


def rolled_after(
    segments: Iterable[SpanT], *, copied_through: int, log_start_offset: int, holes: Sequence[OffsetRange] = ()
) -> list[SpanT]:
    """Return the rolled segments that hold an offset due for copy, stable or not; ``segments`` ascending.

    Args:
        segments: the segments that are left of the log.
        copied_through: highest offset already remote, inclusive; -1 when there is none.
        log_start_offset: nothing below it is wanted.
        holes: offsets up to ``copied_through`` that the tier lacks.
    """
    due_from = first_offset_due(copied_through=copied_through, log_start_offset=log_start_offset)
    wanted = [hole for hole in holes if hole.end >= log_start_offset]
    return [
        s
        for s in segments
        if s.next_base_offset is not None
        and (
            due_from < s.next_base_offset
            or (s.next_base_offset > log_start_offset and overlaps(wanted, s.base_offset, s.next_base_offset - 1))
        )
    ]


def overlaps(ranges: Iterable[OffsetRange], first: int, last: int) -> bool:
    """Return whether any of ``ranges`` has an offset from ``first`` to ``last``, both inclusive."""
    return any(each.start <= last and first <= each.end for each in ranges)


def copy_candidates(
    segments: Sequence[SpanT],
    *,
    copied_through: int,
    log_start_offset: int,
    last_stable_offset: int,
    holes: Sequence[OffsetRange] = (),
) -> list[CopyCandidate[SpanT]]:
    """Choose the rolled segments due for copy, oldest first (remote-tiering 10.4).

    Args:
        segments: the segments that are left of the log, ascending. The active one has no end and is never due.
        copied_through: highest offset already remote, inclusive; -1 when there is none.
        log_start_offset: nothing below it is wanted; inside a segment, that segment is copied whole.
        last_stable_offset: exclusive; from here on a transaction may still abort.
        holes: offsets up to ``copied_through`` that the tier lacks.
    """
    candidates = []
    for segment in rolled_after(
        segments, copied_through=copied_through, log_start_offset=log_start_offset, holes=holes
    ):
        assert segment.next_base_offset is not None, "only rolled segments are chosen"
        if segment.next_base_offset > last_stable_offset:
            break
        candidates.append(CopyCandidate(segment, end_offset=segment.next_base_offset - 1))
    return candidates


@dataclass(frozen=True, slots=True)
class CopyDelay:
    """Time for which a rolled segment stays local only, to be copied late (KIP-1241; remote-tiering 10.5).

    Attributes:
        lag_ms: age at which a segment is copied; 0 delays nothing, and below 0 age alone never releases it.
        lag_bytes: bytes of log behind a segment at which it is copied; in the same way.
    """

    lag_ms: int = 0
    lag_bytes: int = 0

    @classmethod
    def resolve(cls, *, lag_ms: int, lag_bytes: int, local_retention_ms: int, local_retention_bytes: int) -> Self:
        """Return the delay of a topic; a lag of -1 stands for the local retention, whose -1 is no limit."""
        return cls(
            lag_ms=local_retention_ms if lag_ms == -1 else lag_ms,
            lag_bytes=local_retention_bytes if lag_bytes == -1 else lag_bytes,
        )

    @property
    def is_none(self) -> bool:
        """Return True if everything is copied at once."""
        return self.lag_ms == 0 or self.lag_bytes == 0


class Age(NamedTuple):
    """Facts for the delay of a segment: its largest timestamp, None without one, and the bytes behind it."""

    largest_timestamp_ms: int | None
    bytes_after: int


class Ripe(NamedTuple):
    """Number of segments that may be copied, oldest first, and the wall clock at which the next one is old enough."""

    segments: int
    next_due_ms: int | None


def ripe_segments(ages: Iterable[Age], delay: CopyDelay, *, now_ms: int) -> Ripe:
    """Choose the segments whose delay is over, oldest first, up to the first that has to wait (remote-tiering 10.5).

    A timestamp in the future, or none at all, is no reason to wait, since the end of the wait would be unknown.
    """
    count = 0
    for age in ages:
        if not (delay.is_none or _is_old(age, delay, now_ms) or 0 < delay.lag_bytes <= age.bytes_after):
            due_ms = None if age.largest_timestamp_ms is None or delay.lag_ms < 0 else age.largest_timestamp_ms
            return Ripe(count, None if due_ms is None else due_ms + delay.lag_ms)
        count += 1
    return Ripe(count, None)


def _is_old(age: Age, delay: CopyDelay, now_ms: int) -> bool:
    if delay.lag_ms < 0:
        return False
    timestamp_ms = age.largest_timestamp_ms
    return timestamp_ms is None or timestamp_ms > now_ms or now_ms - timestamp_ms >= delay.lag_ms


def gaps(segments: Iterable[OffsetSpan], *, due_from: int) -> list[OffsetRange]:
    """Return the offsets from ``due_from`` on before or between ``segments``: deleted before they were copied."""
    found = []
    expected = due_from
    for segment in segments:
        if segment.base_offset > expected:
            found.append(OffsetRange(expected, segment.base_offset - 1))
        if segment.next_base_offset is None:
            break
        expected = max(expected, segment.next_base_offset)
    return found


def without_range(ranges: Iterable[OffsetRange], taken: OffsetRange) -> tuple[OffsetRange, ...]:
    """Return what is left of ``ranges`` without the offsets of ``taken``, in the same order."""
    left = []
    for each in ranges:
        if taken.end < each.start or each.end < taken.start:
            left.append(each)
            continue
        if each.start < taken.start:
            left.append(OffsetRange(each.start, taken.start - 1))
        if taken.end < each.end:
            left.append(OffsetRange(taken.end + 1, each.end))
    return tuple(left)


def local_log_start(segments: Sequence[OffsetSpan], *, checkpointed: int | None) -> int:
    """Return the start of the broker's own log; 0 without segments and entry."""
    return max(segments[0].base_offset if segments else 0, checkpointed or 0)


def initial_log_start_offset(
    lineage: Lineage,
    list_epoch: Callable[[int], Sequence[RemoteLogSegmentMetadata]],
    *,
    local_log_start_offset: int | None,
) -> int:
    """Return the start of the total log of a partition whose start was never stored (remote-tiering 10.2).

    Only finished segments count: a start taken from an attempt that failed would skip what lies before it for good.
    The lower start of tier and local log counts: the first segments of the tier may be lost, and the local log have
    them.

    Args:
        lineage: the lineage of the total log.
        list_epoch: the rows of an epoch.
        local_log_start_offset: the start of the broker's own log; None for a log without a segment.
    """
    starts = [] if local_log_start_offset is None else [local_log_start_offset]
    for entry in lineage.entries:
        finished = [m for m in list_epoch(entry.epoch) if m.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
        if finished:
            starts += [m.first_readable_offset for m in finished]
            break
    return min(starts, default=0)


def deleted_records_before(
    *, checkpointed: int | None, segments: Iterable[OffsetSpan], high_watermark: int | None
) -> int | None:
    """Return the offset that a DeleteRecords request raised the log start to, None when there was none.

    The broker's own retention moves the local start to a segment's base; that is no deletion for the tier. Retention
    raises and checkpoints the start before it renames the files, so a base above the first one says nothing either:
    only a request can put the start inside a segment. When in doubt nothing counts as requested, for a log
    start that is too high hides history for good, and one that is too low hides nothing.

    Args:
        checkpointed: the entry of ``log-start-offset-checkpoint``, None when there is none.
        segments: the live ones, listed after the checkpoint was read: an older listing may lack the very base.
        high_watermark: the offset that the active segment surely reaches, exclusive; None until it is written.
    """
    if checkpointed is None:
        return None
    for segment in segments:
        end = high_watermark if segment.next_base_offset is None else segment.next_base_offset
        if segment.base_offset < checkpointed < (end or 0):
            return checkpointed
    return None


class Dangling(NamedTuple):
    """Rows to sweep now, oldest first, and the wall clock at which the next one is due, None when there is none."""

    due: list[RemoteLogSegmentMetadata]
    next_due_ms: int | None


def dangling_segments(
    segments: Iterable[RemoteLogSegmentMetadata],
    *,
    being_copied: Collection[UUID],
    now_ms: int,
    grace_ms: int,
    limit: int,
) -> Dangling:
    """Choose the rows that no living writer will bring to an end (remote-tiering 12.8).

    A deletion that was begun is due at once, unless the segment was readable: it may still be taken back, and
    expiration goes on with it. A copy that was begun is due after the grace, unless this process is at it:
    ``being_copied`` speaks for our own session, and fencing keeps every other writer from finishing it.
    """
    due, waiting = [], []
    for metadata in sorted(segments, key=lambda m: (m.event_timestamp_ms, m.start_offset)):
        if metadata.segment.id in being_copied:
            continue
        match metadata.state:
            case RemoteLogSegmentState.DELETE_SEGMENT_STARTED if metadata.soft_delete is None:
                due.append(metadata)
            case RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                due_ms = metadata.event_timestamp_ms + grace_ms
                # A writer whose clock was years ahead would have it kept for years.
                if due_ms <= now_ms or metadata.event_timestamp_ms > now_ms + grace_ms:
                    due.append(metadata)
                else:
                    waiting.append(due_ms)
            case _:
                pass
    next_due_ms = now_ms if len(due) > limit else min(waiting, default=None)
    return Dangling(due[:limit], next_due_ms)
