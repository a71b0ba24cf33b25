"""The chain: the readable segments of a partition along its lineage, and the breaks between them."""

from dataclasses import dataclass, replace
from typing import Self

from tierd.metadata import OwnBranch, PartitionView, ReadableRange
from tierd.model import Lineage, OffsetRange, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Chain:
    """Segments that readers find and that can be rewritten, in the order of the log.

    Attributes:
        segments: each begins and ends above the one before it, and is of the lineage from end to end.
        breaks: places of segments before which offsets are missing, or are in two segments: no group crosses a break.
        elsewhere: ranges that readers find in other segments, each of which goes on with an abandoned branch.
        missing: first offsets that readers do not find, and that are still in the local log: the leader copies them
            again, as they are there. None without any.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...] = ()
    breaks: frozenset[int] = frozenset()
    elsewhere: tuple[ReadableRange, ...] = ()
    missing: OffsetRange | None = None

    @property
    def covered_to(self) -> int | None:
        """Return the offset below which readers find all records in ``segments``; None if that is so to the end.

        From that offset on readers also find records, perhaps older ones of a key or aborted ones, in other segments,
        or will find them once offsets are copied again. No rewrite of ``segments`` removes such records.
        """
        starts = [readable.start_offset for readable in self.elsewhere[:1]]
        starts += [] if self.missing is None else [self.missing.start]
        return min(starts, default=None)

    @property
    def end_offset(self) -> int:
        """Return the end of the last segment, exclusive; 0 for an empty chain."""
        return self.segments[-1].end_offset + 1 if self.segments else 0

    def below(self, offset: int) -> Self:
        """Return the part whose segments end below ``offset``."""
        count = sum(metadata.end_offset < offset for metadata in self.segments)
        breaks = frozenset(place for place in self.breaks if place < count)
        return replace(self, segments=self.segments[:count], breaks=breaks)

    def covered(self) -> Self:
        """Return the part whose segments end before anything that readers find elsewhere."""
        return self if self.covered_to is None else self.below(self.covered_to)

    def broken_at(self, offset: int | None) -> Self:
        """Return the chain with a break before the segment that begins at ``offset``, if there is such a segment."""
        places = (place for place, metadata in enumerate(self.segments) if metadata.start_offset == offset)
        return replace(self, breaks=self.breaks.union(places))


def readable_chain(view: PartitionView, lineage: Lineage, *, local_start: int | None = None) -> Chain:
    """Walk along ``lineage``, which is that of both tiers, from the log start to the end of the tier.

    A segment of which readers take only the beginning, since it goes on with an abandoned branch, is in ``elsewhere``.
    ``local_start``: from here on the local log has every offset; None without a local log.
    """
    branch = OwnBranch(view, lineage)
    at, missing = view.log_start_offset or 0, None
    segments: list[RemoteLogSegmentMetadata] = []
    elsewhere: list[ReadableRange] = []
    for readable in branch.readable_ranges(at, branch.end_offset):
        metadata = readable.metadata
        if missing is None and local_start is not None and max(at, local_start) < readable.start_offset:
            missing = OffsetRange(max(at, local_start), readable.start_offset - 1)
        at = readable.end_offset
        follows = not segments or (
            metadata.start_offset > segments[-1].start_offset and metadata.end_offset > segments[-1].end_offset
        )
        if follows and is_of_lineage(metadata, lineage):
            segments.append(metadata)
        elif metadata not in segments[-1:]:
            elsewhere.append(readable)
    breaks = (i for i in range(1, len(segments)) if not _continues(segments[i], segments[i - 1]))
    return Chain(tuple(segments), frozenset(breaks), tuple(elsewhere), missing)


def _continues(metadata: RemoteLogSegmentMetadata, previous: RemoteLogSegmentMetadata) -> bool:
    """Return True if readers go from ``previous`` to ``metadata`` without a hole, and find no offset in both."""
    following = previous.end_offset + 1
    return metadata.start_offset == metadata.first_readable_offset == following


def is_of_lineage(metadata: RemoteLogSegmentMetadata, lineage: Lineage) -> bool:
    """Return True if every offset that the segment answers for is of the epoch that ``lineage`` assigns to it."""
    own = Lineage(metadata.segment_leader_epochs).with_data()
    return own == lineage.entries_in(metadata.first_readable_offset, metadata.end_offset + 1).with_data()
