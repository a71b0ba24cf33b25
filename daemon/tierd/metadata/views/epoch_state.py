"""RemoteLogLeaderEpochState: offset to segment along one leader epoch (remote-tiering 6; Kafka has the same name).

Immutable: an event gives an ``EpochChange``, which holds the next state and just those rows of it that differ.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from tierd.errors import RemoteResourceNotFoundError
from tierd.model import OffsetRange, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class RemoteLogLeaderEpochState:
    """Segments that answer for the offsets of one epoch.

    Attributes:
        first_offsets: ascending; the first offset of this epoch inside each finished segment that a lookup can return.
        ids: the segments, in the order of ``first_offsets``.
        unreferenced: segments that mention the epoch, but that only listing returns.
        highest: largest offset ever finished in this epoch, inclusive; it only grows, also across deletes.
    """

    first_offsets: tuple[int, ...] = ()
    ids: tuple[UUID, ...] = ()  # invariant: len(ids) == len(first_offsets)
    unreferenced: frozenset[UUID] = frozenset()
    highest: int | None = None

    def floor(self, offset: int) -> UUID | None:
        """Return the segment that begins at or last before ``offset``; the caller checks that it reaches ``offset``."""
        index = bisect_right(self.first_offsets, offset)
        return self.ids[index - 1] if index else None

    def referenced_at(self, first_offset: int) -> UUID | None:
        """Return the segment that is referenced from exactly this offset."""
        index = bisect_left(self.first_offsets, first_offset)
        found = index < len(self.first_offsets) and self.first_offsets[index] == first_offset
        return self.ids[index] if found else None

    def answers(
        self, first: int, last: int, *, range_of: "Callable[[UUID], EpochRange]"
    ) -> tuple[tuple[OffsetRange, UUID], ...]:
        """Return the segments that a lookup finds for the offsets from ``first`` to ``last``, inclusive, without holes.

        ``range_of`` gives the range of this epoch in a segment. A range begins below ``first`` where its segment does.
        """
        start = max(bisect_right(self.first_offsets, first) - 1, 0)
        stop = bisect_right(self.first_offsets, last)
        found = []
        for index in range(start, stop):
            end = range_of(self.ids[index]).last
            if index + 1 < len(self.ids):
                end = min(end, self.first_offsets[index + 1] - 1)
            if end >= self.first_offsets[index]:
                found.append((OffsetRange(self.first_offsets[index], end), self.ids[index]))
        return tuple(found)

    def is_blank(self) -> bool:
        """Return True if the state holds nothing that must be kept."""
        return not self.ids and not self.unreferenced and self.highest is None

    def listed(self, get: Callable[[UUID], RemoteLogSegmentMetadata | None]) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return every segment of the epoch by start offset, a referenced one before others of the same start.

        Raises:
            RemoteResourceNotFoundError: an id without metadata.
        """
        found = [_require(segment_id, get) for segment_id in self.ids]
        if self.unreferenced:
            rest = [_require(segment_id, get) for segment_id in self.unreferenced]
            rest.sort(key=lambda metadata: metadata.segment.id)
            found = sorted([*found, *rest], key=lambda metadata: metadata.start_offset)
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochChange:
    """Change of one epoch by one event; everything but ``state`` is the difference, to be stored."""

    epoch: int
    state: RemoteLogLeaderEpochState
    dereferenced: tuple[int, ...] = ()
    referenced: tuple[tuple[int, UUID], ...] = ()
    unreferenced: tuple[UUID, ...] = ()
    forgotten: tuple[UUID, ...] = ()
    highest: int | None = None

    def is_empty(self) -> bool:
        """Return True if the state did not change."""
        return self.highest is None and not (
            self.dereferenced or self.referenced or self.unreferenced or self.forgotten
        )


@dataclass(frozen=True, slots=True)
class EpochRange:
    """The offsets of ``epoch`` in one segment, both inclusive; ``last`` is below ``first`` for an epoch without any."""

    epoch: int
    first: int
    last: int

    def holds(self, other: "EpochRange") -> bool:
        """Return True if ``other`` lies in this range and is shorter."""
        inside = self.first <= other.first and other.last <= self.last
        return inside and (self.first, self.last) != (other.first, other.last)


def ranges_of(metadata: RemoteLogSegmentMetadata) -> tuple[EpochRange, ...]:
    """Return the range of every epoch that the segment covers."""
    return tuple(
        EpochRange(entry.epoch, entry.start_offset, metadata.epoch_end(entry.epoch))
        for entry in metadata.segment_leader_epochs
    )


def started(state: RemoteLogLeaderEpochState, epoch: int, *segment_ids: UUID) -> EpochChange:
    """Begin copies: listed, found by no lookup (6.2)."""
    return _change(state, epoch, hide=segment_ids)


def finished(
    state: RemoteLogLeaderEpochState,
    segment_id: UUID,
    span: EpochRange,
    *,
    range_of: Callable[[UUID], EpochRange],
    strict_kafka_compat: bool,
) -> EpochChange:
    """Finish a copy: it is referenced from the first offset of the epoch on (6.4).

    Kafka's algorithm leaves holes, offsets that a finished segment contains and no lookup finds, when a shorter
    segment finishes late. The holes stay with ``strict_kafka_compat``. Otherwise, of two segments one of which contains
    the other, only the longer is referenced; of two equal ones the later. So first and last offsets ascend together,
    and the floor of an offset contains it if any referenced segment does.
    """
    highest = span.last if state.highest is None else max(span.last, state.highest)
    if strict_kafka_compat:
        start, stop, hide = _popped_by_kafka(state, span)
    else:
        floor = state.floor(span.first)
        if floor is not None and range_of(floor).holds(span):
            return _change(state, span.epoch, hide=(segment_id,), highest=highest)
        start = stop = bisect_left(state.first_offsets, span.first)
        while stop < len(state.ids) and range_of(state.ids[stop]).last <= span.last:
            stop += 1
        hide = state.ids[start:stop]
    return _change(
        state,
        span.epoch,
        start=start,
        stop=stop,
        insert=((span.first, segment_id),),
        hide=tuple(other for other in hide if other != segment_id),
        show=(segment_id,),
        highest=highest,
    )


def delete_started(state: RemoteLogLeaderEpochState, segment_id: UUID, span: EpochRange) -> EpochChange:
    """Hide the segment from lookups; a segment that it had shadowed does not come back (6.5)."""
    index = bisect_left(state.first_offsets, span.first)
    referenced = state.referenced_at(span.first) == segment_id
    return _change(state, span.epoch, start=index, stop=index + referenced, hide=(segment_id,))


def delete_finished(state: RemoteLogLeaderEpochState, segment_id: UUID, span: EpochRange) -> EpochChange:
    """Forget a segment that is gone; ``highest`` stays (6.6)."""
    return _change(state, span.epoch, show=(segment_id,))


def replaced(
    state: RemoteLogLeaderEpochState,
    epoch: int,
    *,
    inputs: Collection[UUID],
    output: tuple[UUID, EpochRange] | None,
    range_of: Callable[[UUID], EpochRange],
    strict_kafka_compat: bool,
) -> EpochChange:
    """Remove segments from every lookup and put one that has their records in their place, in one step.

    Args:
        state: before.
        epoch: the epoch of ``state``.
        inputs: those that go, of those that mention the epoch; they stay listed.
        output: the id and range of the segment that is finished in their place; None where the output does not
            mention the epoch.
        range_of: as in ``finished``.
        strict_kafka_compat: as in ``finished``.
    """
    gone = frozenset(inputs)
    kept = [pair for pair in zip(state.first_offsets, state.ids, strict=True) if pair[1] not in gone]
    after = RemoteLogLeaderEpochState(
        tuple(offset for offset, _ in kept),
        tuple(segment_id for _, segment_id in kept),
        state.unreferenced | gone,
        state.highest,
    )
    if output is not None:
        segment_id, span = output
        after = finished(after, segment_id, span, range_of=range_of, strict_kafka_compat=strict_kafka_compat).state
    return difference(epoch, state, after)


def difference(epoch: int, before: RemoteLogLeaderEpochState, after: RemoteLogLeaderEpochState) -> EpochChange:
    """Return the change of an epoch from one state to another."""
    was = dict(zip(before.first_offsets, before.ids, strict=True))
    now = dict(zip(after.first_offsets, after.ids, strict=True))
    return EpochChange(
        epoch=epoch,
        state=after,
        dereferenced=tuple(offset for offset in was if offset not in now),
        referenced=tuple((offset, segment_id) for offset, segment_id in now.items() if was.get(offset) != segment_id),
        unreferenced=tuple(sorted(after.unreferenced - before.unreferenced)),
        forgotten=tuple(sorted(before.unreferenced - after.unreferenced)),
        highest=None if after.highest == before.highest else after.highest,
    )


def _popped_by_kafka(state: RemoteLogLeaderEpochState, span: EpochRange) -> tuple[int, int, tuple[UUID, ...]]:
    """Return the references that a finisher replaces in Kafka, as a slice, and those of them that stay listed."""
    start = bisect_left(state.first_offsets, span.first)
    if state.highest is None or state.highest <= span.last:
        return start, len(state.ids), state.ids[start:]
    # A longer segment with the same start leaves both structures: only a list of everything shows it.
    return start, start + (state.referenced_at(span.first) is not None), ()


def _change(
    state: RemoteLogLeaderEpochState,
    epoch: int,
    *,
    start: int = 0,
    stop: int = 0,
    insert: tuple[tuple[int, UUID], ...] = (),
    hide: tuple[UUID, ...] = (),
    show: tuple[UUID, ...] = (),
    highest: int | None = None,
) -> EpochChange:
    """Replace the references ``start`` to ``stop`` (exclusive), and return the differences from ``state``."""
    dropped = list(zip(state.first_offsets[start:stop], state.ids[start:stop], strict=True))
    kept_offsets = {offset for offset, _ in insert}
    added = tuple(segment_id for segment_id in hide if segment_id not in state.unreferenced)
    removed = tuple(segment_id for segment_id in show if segment_id in state.unreferenced)
    first_offsets, ids = state.first_offsets, state.ids
    if dropped != list(insert):
        first_offsets = (*first_offsets[:start], *kept_offsets, *first_offsets[stop:])
        ids = (*ids[:start], *(segment_id for _, segment_id in insert), *ids[stop:])
    return EpochChange(
        epoch=epoch,
        state=RemoteLogLeaderEpochState(
            first_offsets,
            ids,
            state.unreferenced.union(added).difference(removed) if added or removed else state.unreferenced,
            state.highest if highest is None else highest,
        ),
        dereferenced=tuple(offset for offset, _ in dropped if offset not in kept_offsets),
        referenced=tuple(pair for pair in insert if pair not in dropped),
        unreferenced=added,
        forgotten=removed,
        highest=None if highest == state.highest else highest,
    )


def _require(segment_id: UUID, get: Callable[[UUID], RemoteLogSegmentMetadata | None]) -> RemoteLogSegmentMetadata:
    metadata = get(segment_id)
    if metadata is None:
        raise RemoteResourceNotFoundError(f"segment {segment_id} is referenced by an epoch, but has no metadata")
    return metadata
