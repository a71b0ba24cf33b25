"""Decisions of a rebuild: the metadata of a partition from the content of the bucket (DESIGN 4).

- A segment is finished if its manifest is there, it has no tombstone and no later output replaces it.
- A segment that has a tombstone, or that a later output replaces, is DELETE_SEGMENT_STARTED. Such a segment is not
  read, counts for the highest offset, and the expiration ends its deletion, so that its objects do not stay for ever.
  Nor does it hide another segment: one that it had shadowed can be read again, which the lost metadata may have denied.
- An output whose commit a crash prevented counts as committed: everything was checked before its manifest was
  written (docs/decisions/0019).
- Copies are applied in their order: by leader epoch, then by the time they began.
- A deletion that began is given the whole grace again, from the rebuild on.
- The log start is the one of the partition's record in the bucket (decision 24). Without a record it stays unset, and
  the next leader finds it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate
from typing import Final, TypeAlias
from uuid import UUID

from tierd.metadata.rows import Claim, PartitionRow
from tierd.metadata.views import (
    NO_STATE,
    EpochRange,
    OwnBranch,
    PartitionView,
    RemoteLogLeaderEpochState,
    effective_lineage,
    epoch_state,
    overlaps,
)
from tierd.model import (
    Lineage,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    TopicIdPartition,
    uuid_to_text,
)

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_NO_SESSION: Final = UUID(int=0)
_Order: TypeAlias = tuple[int, int, int, UUID]


class RebuildSeverity(Enum):
    """Severity of a problem: a note is normal, a conflict or a damage makes the answer of the rebuild "no"."""

    NOTE = "note"
    CONFLICT = "conflict"
    DAMAGE = "damage"


@dataclass(frozen=True, slots=True)
class RebuildProblem:
    """An object in the bucket, or a contradiction between objects, that did not become metadata as a whole.

    Attributes:
        severity: meaning of the problem for the result.
        kind: one word or two, fixed, for programs.
        where: a key, or a segment.
        what: a sentence for people, without the place.
    """

    severity: RebuildSeverity
    kind: str
    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSegment:
    """One segment as its objects describe it.

    Attributes:
        metadata: COPY_SEGMENT_STARTED, as it was when the copy began.
        replaces: segments that this one made obsolete.
        soft_delete: its tombstone; None when it has none.
        deleted_ms: time at which the tombstone was written.
        deleted_by: broker that wrote the tombstone.
        is_authentic: a holder of the key ring wrote the manifest, or no key ring is configured. Otherwise a person
            has said that the manifest is believed.
    """

    metadata: RemoteLogSegmentMetadata
    replaces: frozenset[UUID] = frozenset()
    soft_delete: SoftDelete | None = None
    deleted_ms: int = -1
    deleted_by: int = -1
    is_authentic: bool = True

    @property
    def may_replace(self) -> bool:
        """Return True if its list of inputs counts: it has no tombstone, or one because it was replaced itself."""
        return self.soft_delete is None or self.soft_delete.is_replaced

    @property
    def order(self) -> _Order:
        """Return the sort key of its copy: leader epoch, then the time at which the copy began."""
        return _order(self.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketLogStart:
    """Log start of a partition as its record in the bucket has it, and the leader that wrote the record."""

    log_start_offset: int
    leader_epoch: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class RebuiltPartition:
    """The partition's metadata, without a row where the bucket has neither segment nor log start; and the problems."""

    view: PartitionView
    problems: tuple[RebuildProblem, ...] = ()


def rebuild_partition(
    partition: TopicIdPartition,
    found: Iterable[BucketSegment],
    *,
    session_id: UUID,
    replaced: SoftDelete,
    log_start: BucketLogStart | None = None,
    strict_kafka_compat: bool = False,
) -> RebuiltPartition:
    """Make the partition's metadata from its segments.

    Args:
        partition: owner of the segments.
        found: in any order.
        session_id: owner of the partition until the next leader claims it; every earlier session is fenced.
        replaced: reason and time of the deletion of replaced segments. No deletion with a tombstone ends before the
            same time: the grace counts from the rebuild, since the tombstone may be an old one that was put again.
        log_start: log start in the bucket's record; None where there is none, or none that can be read.
        strict_kafka_compat: as in ``PartitionView``.
    """
    segments = sorted(found, key=lambda segment: segment.order)
    losers, gone, problems = _replacements(segments)
    metadata = [
        _deleting(segment, _not_before(segment.soft_delete or replaced, replaced.delete_after_ms))
        if segment.soft_delete is not None or segment.metadata.segment.id in gone
        else replace(segment.metadata, state=_FINISHED)
        for segment in segments
        if segment.metadata.segment.id not in losers
    ]
    view = PartitionView(
        partition,
        _row(partition, segments, log_start, session_id),
        {each.segment.id: each for each in metadata},
        _Replay(metadata, strict_kafka_compat=strict_kafka_compat).states,
        strict_kafka_compat=strict_kafka_compat,
    )
    finished = {each.segment.id for each in metadata if each.state is _FINISHED}
    readable = [segment for segment in segments if segment.metadata.segment.id in finished]
    return RebuiltPartition(view, (*problems, *_unproven_overlaps(readable), *_overlaps(view)))


def differences(stored: PartitionView, rebuilt: PartitionView) -> list[str]:
    """Return the segments in which the two differ, events and claims apart; unfinished copies are not compared."""
    old = {
        id_: metadata
        for id_, metadata in stored.segments.items()
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED
    }
    found: list[str] = []
    for segment_id in sorted(old.keys() | rebuilt.segments.keys()):
        was, now = old.get(segment_id), rebuilt.segments.get(segment_id)
        if was is None or now is None:
            missing = "metadata store" if was is None else "bucket"
            found.append(f"{stored.partition}: segment {uuid_to_text(segment_id)} is not in the {missing}")
        elif _lasting(was) != _lasting(now):
            found.append(f"{stored.partition}: segment {uuid_to_text(segment_id)} is another one in the metadata store")
    return found


def _lasting(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """Return the metadata without the fields that may differ: an adopted segment has the claim of its adoption."""
    return replace(
        metadata, event_timestamp_ms=0, broker_id=0, leader_epoch=-1, session_id=_NO_SESSION, soft_delete=None
    )


def _order(metadata: RemoteLogSegmentMetadata) -> _Order:
    return metadata.leader_epoch, metadata.event_timestamp_ms, metadata.start_offset, metadata.segment.id


def _not_before(soft_delete: SoftDelete, earliest_ms: int) -> SoftDelete:
    return replace(soft_delete, delete_after_ms=max(soft_delete.delete_after_ms, earliest_ms))


def _deleting(segment: BucketSegment, soft_delete: SoftDelete) -> RemoteLogSegmentMetadata:
    metadata = replace(segment.metadata, state=_DELETE_STARTED, soft_delete=soft_delete)
    if segment.soft_delete is None:
        return metadata
    return replace(metadata, event_timestamp_ms=segment.deleted_ms, broker_id=segment.deleted_by)


def _row(
    partition: TopicIdPartition,
    segments: Sequence[BucketSegment],
    log_start: BucketLogStart | None,
    session_id: UUID,
) -> PartitionRow | None:
    """Return the row under the claim of the latest leader that the bucket knows; earlier ones are fenced."""
    owners = [(each.metadata.leader_epoch, each.metadata.broker_id) for each in segments[-1:]]
    if log_start is not None:
        owners.append((log_start.leader_epoch, log_start.broker_id))
    if not owners:
        return None
    offset = None if log_start is None else log_start.log_start_offset
    leader_epoch, broker_id = max(owners, key=lambda owner: owner[0])
    claim = Claim(leader_epoch, broker_id, session_id)
    return PartitionRow(
        topic=partition.topic, revision=1, claim=claim, log_start_offset=offset, recorded_log_start=offset
    )


def _replacements(segments: Sequence[BucketSegment]) -> tuple[set[UUID], set[UUID], list[RebuildProblem]]:
    """Return the outputs that lose against another one, the segments that are replaced, and the conflicts.

    A later output wins. An output that is being deleted replaces no segment, since its commit may never have happened.
    An output that goes because it was replaced itself was committed, and does replace its inputs. An output that
    nothing proves replaces no segment that is proven, whatever a person has accepted: that output is left out.
    """
    proven = {segment.metadata.segment.id for segment in segments if segment.is_authentic}
    orders = {segment.metadata.segment.id: segment.order for segment in segments}
    losers: set[UUID] = set()
    winner_of: dict[UUID, BucketSegment] = {}
    problems: list[RebuildProblem] = []
    for output in reversed([each for each in segments if each.replaces and each.may_replace]):
        where = str(output.metadata.segment)
        if not output.is_authentic and not proven.isdisjoint(output.replaces):
            what = "nothing proves that a tierd with the key ring wrote it, and it replaces segments that are proven"
            problems.append(RebuildProblem(RebuildSeverity.CONFLICT, "replaces authenticated", where, what))
            losers.add(output.metadata.segment.id)
            continue
        inputs = {id_ for id_ in output.replaces if orders.get(id_, output.order) < output.order or id_ not in orders}
        if inputs != output.replaces:
            what = "it says that it replaces itself or a later segment; that is not believed"
            problems.append(RebuildProblem(RebuildSeverity.CONFLICT, "replaces later", where, what))
        rivals = {winner_of[id_].metadata.segment.id for id_ in inputs if id_ in winner_of}
        if rivals:
            names = ", ".join(sorted(map(uuid_to_text, rivals)))
            what = f"it replaces segments that {names} replaces too, of a later leader epoch or time; it is left out"
            problems.append(RebuildProblem(RebuildSeverity.CONFLICT, "replaced twice", where, what))
            losers.add(output.metadata.segment.id)
            continue
        winner_of.update(dict.fromkeys(inputs, output))
    return losers, winner_of.keys() & orders.keys(), problems


def _unproven_overlaps(readable: Sequence[BucketSegment]) -> list[RebuildProblem]:
    """Report unproven segments, accepted by a person, that have offsets of proven segments.

    Readers may get records of an unproven segment in place of proven ones. All segments are kept, since in a tier that
    was encrypted later the copies of two leaders may well share some offsets.
    """
    spans = sorted(
        (span.epoch, span.first, span.last)
        for segment in readable
        if segment.is_authentic
        for span in epoch_state.ranges_of(segment.metadata)
    )
    starts = [(epoch, first) for epoch, first, _ in spans]
    furthest = list(accumulate(((epoch, last) for epoch, _, last in spans), max))  # up to and with each span
    what = "nothing proves it, and it has offsets of segments that are proven: readers may get its records instead"
    problems = []
    for segment in readable:
        for span in () if segment.is_authentic else epoch_state.ranges_of(segment.metadata):
            before = bisect_right(starts, (span.epoch, span.last))
            if before and furthest[before - 1] >= (span.epoch, span.first):
                where = str(segment.metadata.segment)
                problems.append(RebuildProblem(RebuildSeverity.CONFLICT, "overlaps authenticated", where, what))
                break
    return problems


def _overlaps(view: PartitionView) -> list[RebuildProblem]:
    """Report the overlaps that ``tierd verify`` reports of the same rows on a host without a replica."""
    branch = OwnBranch(view, effective_lineage(view, Lineage()))
    return [
        RebuildProblem(
            RebuildSeverity.CONFLICT,
            "overlap",
            str(each.later.segment),
            f"offsets {each.offsets.start} to {each.offsets.end} are also in {uuid_to_text(each.earlier.segment.id)}, "
            "which the same leader copied; both are kept",
        )
        for each in overlaps(branch)
    ]


class _Replay:
    """Replay of every copy and every begun deletion into the epoch states."""

    def __init__(self, metadata: Iterable[RemoteLogSegmentMetadata], *, strict_kafka_compat: bool) -> None:
        self.states: dict[int, RemoteLogLeaderEpochState] = {}
        self._strict_kafka_compat = strict_kafka_compat
        self._ranges: dict[UUID, dict[int, EpochRange]] = {}
        for each in sorted(metadata, key=lambda m: m.state is _FINISHED):  # first those that go: they hide no other
            self._apply(each)

    def _apply(self, metadata: RemoteLogSegmentMetadata) -> None:
        segment_id, spans = metadata.segment.id, epoch_state.ranges_of(metadata)
        self._ranges[segment_id] = {span.epoch: span for span in spans}
        for span in spans:
            state = self.states.get(span.epoch, NO_STATE)
            state = self._finished(state, segment_id, span)
            if metadata.state is _DELETE_STARTED:
                state = epoch_state.delete_started(state, segment_id, span).state
            self.states[span.epoch] = state

    def _finished(
        self, state: RemoteLogLeaderEpochState, segment_id: UUID, span: EpochRange
    ) -> RemoteLogLeaderEpochState:
        return epoch_state.finished(
            state,
            segment_id,
            span,
            range_of=lambda other: self._ranges[other][span.epoch],
            strict_kafka_compat=self._strict_kafka_compat,
        ).state
