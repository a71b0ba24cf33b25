"""OwnBranch: the parts of a partition's remote segments that are of one lineage. Decisions only (remote-tiering 8)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tierd.metadata.rows import TierEpochs
from tierd.metadata.views.partition_view import PartitionView
from tierd.model import Lineage, OffsetRange, RemoteLogSegmentMetadata, RemoteLogSegmentState


class ReadableRange(NamedTuple):
    """The offsets ``[start_offset, end_offset)`` of a segment, which need not hold a record for each of them."""

    metadata: RemoteLogSegmentMetadata
    start_offset: int
    end_offset: int


@dataclass(frozen=True)
class OwnBranch:
    """The remote segments as a reader of one lineage sees them.

    Attributes:
        view: the segments.
        lineage: which epoch wrote which offset, over all that is to be read.
    """

    view: PartitionView
    lineage: Lineage

    @cached_property
    def finished(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return the finished segments of any branch, ascending by first and last offset."""
        readable = (m for m in self.view.list() if m.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        return tuple(sorted(readable, key=lambda m: (m.start_offset, m.end_offset)))

    @cached_property
    def _first_offsets(self) -> tuple[int, ...]:
        """Return the offsets at which a segment may begin to answer, ascending: its epochs, and those of the lineage.

        A segment may answer from a later epoch than its first one on: a longer segment hid the first epochs, and was
        deleted afterwards.
        """
        of_segments = {entry.start_offset for m in self.finished for entry in m.segment_leader_epochs}
        return tuple(sorted(of_segments.union(entry.start_offset for entry in self.lineage.entries)))

    @cached_property
    def end_offset(self) -> int:
        """Return the exclusive end of the branch's offsets in the tier; 0 when the tier holds none of them."""
        ends = (
            min(m.epoch_end(entry.epoch), self._epoch_end(entry.epoch))
            for m in self.finished
            for entry in m.segment_leader_epochs
        )
        return max(ends, default=-1) + 1

    @cached_property
    def indexed_end_offset(self) -> int:
        """Return the exclusive end of the segments that may name aborted transactions; 0 when none may."""
        return max((m.end_offset for m in self.finished if not m.txn_index_empty), default=-1) + 1

    @cached_property
    def _inner_holes(self) -> tuple[int, ...]:
        """Return the first offset of each hole between two readable parts of the branch, ascending."""
        first, end = min(self._first_offsets, default=0), self.end_offset
        return tuple(hole.start for hole in self.holes(first, end) if first < hole.start and hole.end + 1 < end)

    @cached_property
    def last_whole(self) -> RemoteLogSegmentMetadata | None:
        """Return the segment that ends last of those that are of the branch from end to end.

        The producer snapshot of such a segment describes this branch only. A segment that goes on with another branch
        has a snapshot of that branch. The segment that begins last need not be the one that ends last: the broker's
        cleaner makes one log of several, and the copy of that log covers shorter copies that begin inside it.
        """
        by_end = sorted(self.finished, key=lambda m: m.end_offset, reverse=True)
        return next((m for m in by_end if self.is_whole(m)), None)

    def is_whole(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if every offset that the segment answers for is of the branch."""
        return self.readable_end(metadata, metadata.first_readable_offset) > metadata.end_offset

    def segment_for(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment that holds ``offset`` in the epoch that wrote it."""
        epoch = self.lineage.epoch_for(offset)
        return None if epoch is None else self.view.segment_for(epoch, offset)

    def segment_before(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment that ends with the offset before ``offset``; None without one.

        Its producer snapshot has the transactions that are open there.
        """
        before = self.segment_for(offset - 1)
        return before if before is not None and before.end_offset == offset - 1 else None

    def readable_end(self, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
        """Return the exclusive end of the branch's offsets that ``metadata`` holds from ``offset`` on without a break.

        After an unclean election a segment may go on with epochs, or with offsets of an epoch, that the lineage has
        abandoned; a reader must take these offsets from another segment.
        """
        end = offset
        while end <= metadata.end_offset:
            epoch = self.lineage.epoch_for(end)
            begins = next((e.start_offset for e in metadata.segment_leader_epochs if e.epoch == epoch), None)
            if epoch is None or begins is None or begins > end:
                break
            own_end = min(metadata.epoch_end(epoch), self._epoch_end(epoch)) + 1
            if own_end <= end:  # the segment goes on with another epoch where the branch goes on with this one
                break
            end = own_end
        return end

    def next_answered(self, offset: int) -> int | None:
        """Return the first offset above ``offset``, which is in a hole, that a segment answers; None without any."""
        above = (start for start in self._first_offsets[bisect_right(self._first_offsets, offset) :])
        return next((start for start in above if self._answers(start)), None)

    def _answers(self, offset: int) -> bool:
        metadata = self.segment_for(offset)
        return metadata is not None and self.readable_end(metadata, offset) > offset

    def hole_from(self, offset: int, *, local_start: int | None, local_end: int) -> int | None:
        """Return the first offset from ``offset`` on that is in no segment and not in ``[local_start, local_end)``.

        None where no readable offset follows it, as at the end of the tier without a local log.
        """
        holes = self._inner_holes[bisect_left(self._inner_holes, offset) :]
        if local_start is None:
            return next(iter(holes), None)
        if offset <= self.end_offset < local_start:
            holes += (self.end_offset,)
        return next((hole for hole in holes if not local_start <= hole < local_end), None)

    def readable_ranges(self, start_offset: int, end_offset: int) -> Iterator[ReadableRange]:
        """Yield the readable parts of ``[start_offset, end_offset)``, ascending; the tier may have holes in between."""
        at, starts = start_offset, iter(self._first_offsets)
        while at < end_offset:
            metadata = self.segment_for(at)
            end = at if metadata is None else min(self.readable_end(metadata, at), end_offset)
            if metadata is not None and end > at:
                yield ReadableRange(metadata, at, end)
                at = end
                continue
            following = next((start for start in starts if start > at), None)
            if following is None:
                return
            at = following

    def holes(self, start_offset: int, end_offset: int) -> Iterator[OffsetRange]:
        """Yield the offsets of ``[start_offset, end_offset)`` that no segment has for the branch, ascending."""
        at = start_offset
        for readable in self.readable_ranges(start_offset, end_offset):
            if readable.start_offset > at:
                yield OffsetRange(at, readable.start_offset - 1)
            at = readable.end_offset
        if at < end_offset:
            yield OffsetRange(at, end_offset - 1)

    def _epoch_end(self, epoch: int) -> int:
        """Return the last offset that the lineage gives to ``epoch``, inclusive; -1 for an epoch that it lacks."""
        following = self.lineage.next_entry(epoch)
        if self.lineage.start_offset_of(epoch) is None:
            return -1
        return (1 << 63) - 1 if following is None else following.start_offset - 1


def effective_lineage(tier: TierEpochs, local: Lineage) -> Lineage:
    """Return which epoch wrote which offset, over remote and local data.

    A broker forgets the epochs below its local log start. The metadata does not.

    From its first entry on the local lineage is the truth: epochs that only the store knows there are of a branch
    that was truncated. Below it every epoch begins where its first readable segment says. The first local epoch
    may begin earlier than the broker remembers, since the broker moves that start up with its log start.
    """
    lineage = Lineage()
    first = local.earliest
    for epoch, start_offset in sorted(tier.first_offsets().items()):
        if first is None or epoch <= first.epoch:
            lineage = lineage.assign(epoch=epoch, start_offset=start_offset)
    for entry in local.entries:
        lineage = lineage.assign(epoch=entry.epoch, start_offset=entry.start_offset)
    return lineage
