"""Layout of one partition: what is where over offsets and over time, as ranges. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicPartition
from tierd.tiering import ManifestFacts, PartitionStatus


class RangePlace(StrEnum):
    """Kind of a range, and the order of the lanes; several kinds share a lane."""

    LOCAL = "local"
    ACTIVE = "active"
    TIER = "tier"
    COMPACTED = "compacted"
    COPYING = "copying"
    WAITING = "waiting"
    EXPIRED = "expired"
    REPLACED = "replaced"
    STANDBY = "standby"
    GAP = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPiece:
    """Segment in the log dir, or one that tierd holds after the broker deleted it.

    Attributes:
        next_base_offset: exclusive end; None for the active segment.
        modified_ms: wall clock of its last append; None where its file could not be examined.
        waits: rolled, and not in the tier yet.
    """

    base_offset: int
    next_base_offset: int | None
    size_bytes: int
    modified_ms: int | None
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOnNode:
    """Copy of the partition by push replication, on the node ``node_id``; ``end_offset`` is exclusive."""

    node_id: int
    start_offset: int
    end_offset: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLayout:
    """Everything that is known of one partition at one moment.

    Attributes:
        topic_id: in Kafka's 22-character form; empty where it is not known.
        rows: of its remote segments, in any state and order.
        tier_problem: why the rows are not known; empty where they are.
        log_start_offset: first offset of the total log; None while it is not known.
        compacted_to: exclusive end of what compaction has cleaned; None for nothing.
        local: segments in the log dir and held ones, ascending.
        manifests: facts that only manifests have, by segment id, as far as they were read.
    """

    partition: TopicPartition
    now_ms: int
    topic_id: str = ""
    status: PartitionStatus | None = None
    rows: tuple[RemoteLogSegmentMetadata, ...] = ()
    tier_problem: str = ""
    log_start_offset: int | None = None
    compacted_to: int | None = None
    local: tuple[LocalPiece, ...] = ()
    standbys: tuple[CopyOnNode, ...] = ()
    manifests: Mapping[UUID, ManifestFacts] = field(default_factory=dict)

    @property
    def high_watermark(self) -> int | None:
        """Return the high watermark, exclusive; None while it is not known."""
        return None if self.status is None else self.status.high_watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Range of offsets in one place.

    Attributes:
        end_offset: inclusive.
        start_ms, end_ms: times of the records, as far as they are known; None where they are not. The begin is the
            largest timestamp of the segment before.
        node_id: of a standby.
        delete_after_ms: wall clock before which the objects of an expired range stay.
    """

    place: RangePlace
    start_offset: int
    end_offset: int
    start_ms: int | None = None
    end_ms: int | None = None
    segments: int = 1
    size_bytes: int = 0
    detail: str = ""
    node_id: int | None = None
    delete_after_ms: int | None = None


_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def log_ranges(facts: PartitionLayout) -> tuple[LogRange, ...]:
    """Return all ranges by place and offset; neighbours of one kind are one range."""
    places = [*_local(facts), *_remote(facts), *_standbys(facts)]
    found: list[LogRange] = []
    for place in RangePlace:
        found += _merged(_with_begins(each for each in places if each.place is place))
    return (*found, *_gaps(facts, places))


def place_of(row: RemoteLogSegmentMetadata, compacted_to: int | None) -> RangePlace:
    """Return the place of a remote segment."""
    if row.state is _STARTED:
        return RangePlace.COPYING
    if row.state is _FINISHED:
        is_cleaned = compacted_to is not None and row.end_offset < compacted_to
        return RangePlace.COMPACTED if is_cleaned else RangePlace.TIER
    return RangePlace.REPLACED if row.soft_delete is not None and row.soft_delete.is_replaced else RangePlace.EXPIRED


def _local(facts: PartitionLayout) -> Iterator[LogRange]:
    for piece in facts.local:
        is_active = piece.next_base_offset is None
        end = facts.high_watermark if piece.next_base_offset is None else piece.next_base_offset
        common = LogRange(
            place=RangePlace.ACTIVE if is_active else RangePlace.LOCAL,
            start_offset=piece.base_offset,
            end_offset=max(piece.base_offset, (end or 0) - 1),
            end_ms=piece.modified_ms,
            size_bytes=piece.size_bytes,
        )
        yield common
        if piece.waits:
            yield replace(common, place=RangePlace.WAITING)


def _remote(facts: PartitionLayout) -> Iterator[LogRange]:
    for row in facts.rows:
        yield LogRange(
            place=place_of(row, facts.compacted_to),
            start_offset=row.first_readable_offset,
            end_offset=row.end_offset,
            end_ms=None if row.max_timestamp_ms < 0 else row.max_timestamp_ms,
            size_bytes=row.size_bytes,
            detail="" if row.soft_delete is None else row.soft_delete.reason.replace("_", " "),
            delete_after_ms=None if row.soft_delete is None else row.soft_delete.delete_after_ms,
        )


def _standbys(facts: PartitionLayout) -> Iterator[LogRange]:
    for copy in facts.standbys:
        if copy.end_offset > copy.start_offset >= 0:
            yield LogRange(
                place=RangePlace.STANDBY,
                start_offset=copy.start_offset,
                end_offset=copy.end_offset - 1,
                detail=copy.detail,
                node_id=copy.node_id,
            )


def _gaps(facts: PartitionLayout, places: Sequence[LogRange]) -> list[LogRange]:
    """Return the offsets between log start and log end that neither the tier nor this host has."""
    if facts.tier_problem:
        return []  # the rows of the tier would fill them
    readable = (RangePlace.LOCAL, RangePlace.ACTIVE, RangePlace.WAITING, RangePlace.TIER, RangePlace.COMPACTED)
    covered = sorted((each.start_offset, each.end_offset) for each in places if each.place in readable)
    if not covered:
        return []
    found, next_offset = [], covered[0][0] if facts.log_start_offset is None else facts.log_start_offset
    for start, end in covered:
        if start > next_offset:
            found.append(LogRange(place=RangePlace.GAP, start_offset=next_offset, end_offset=start - 1, segments=0))
        next_offset = max(next_offset, end + 1)
    return found


def _with_begins(ranges: Iterable[LogRange]) -> list[LogRange]:
    """Return ranges by offset, each beginning in time where the one before ended."""
    ordered = sorted(ranges, key=lambda each: (each.node_id or 0, each.start_offset, each.end_offset))
    found, before_ms = [], None
    for each in ordered:
        if each.end_ms is None:
            found.append(each)
            continue
        start_ms = each.end_ms if before_ms is None else min(before_ms, each.end_ms)
        found.append(replace(each, start_ms=start_ms))
        before_ms = each.end_ms
    return found


def _merged(ordered: Iterable[LogRange]) -> list[LogRange]:
    """Return neighbours of one detail as one range."""
    found: list[LogRange] = []
    for each in ordered:
        last = found[-1] if found else None
        is_next = last is not None and last.start_offset <= each.start_offset <= last.end_offset + 1
        if last is None or not is_next or (last.detail, last.node_id) != (each.detail, each.node_id):
            found.append(each)
            continue
        found[-1] = replace(
            last,
            end_offset=max(last.end_offset, each.end_offset),
            start_ms=_least(last.start_ms, each.start_ms),
            end_ms=_greatest(last.end_ms, each.end_ms),
            segments=last.segments + each.segments,
            size_bytes=last.size_bytes + each.size_bytes,
            delete_after_ms=_greatest(last.delete_after_ms, each.delete_after_ms),
        )
    return found


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _greatest(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
