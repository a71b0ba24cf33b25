"""The chain: the readable segments of a partition along its lineage, and where one does not continue the other."""

from dataclasses import dataclass

from tierd.metadata import PartitionView
from tierd.model import Lineage, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Chain:
    """Readable segments in the order of the log.

    Attributes:
        segments: each begins and ends above the one before it; every one of them is of our branch from end to end.
        breaks: places of segments before which offsets are missing, or are in two segments: no group goes over those.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...] = ()
    breaks: frozenset[int] = frozenset()

    @property
    def end_offset(self) -> int:
        """Exclusive; 0 for an empty chain."""
        return self.segments[-1].end_offset + 1 if self.segments else 0

    def below(self, offset: int) -> "Chain":
        """The part whose segments end below ``offset``."""
        count = sum(metadata.end_offset < offset for metadata in self.segments)
        return Chain(self.segments[:count], frozenset(place for place in self.breaks if place < count))

    def broken_at(self, offset: int | None) -> "Chain":
        """The same with a break before the segment that begins at ``offset``, if one does."""
        places = (place for place, metadata in enumerate(self.segments) if metadata.start_offset == offset)
        return Chain(self.segments, self.breaks.union(places))


def readable_chain(view: PartitionView, lineage: Lineage) -> Chain:
    """Walk along ``lineage``, which is that of both tiers, from the log start to the end of the tier.

    A segment of which a reader takes only a part, for it goes on with a branch that was given up, is left out.
    """
    log_start = view.log_start_offset or 0
    segments: list[RemoteLogSegmentMetadata] = []
    for entry in lineage.entries:
        state = view.epochs.get(entry.epoch)
        for segment_id in state.ids if state else ():
            metadata = view.segments[segment_id]
            goes_on = not segments or (
                metadata.start_offset > segments[-1].start_offset and metadata.end_offset > segments[-1].end_offset
            )
            if goes_on and metadata.end_offset >= log_start and is_of_lineage(metadata, lineage):
                segments.append(metadata)
    breaks = (i for i in range(1, len(segments)) if segments[i].start_offset != segments[i - 1].end_offset + 1)
    return Chain(tuple(segments), frozenset(breaks))


def is_of_lineage(metadata: RemoteLogSegmentMetadata, lineage: Lineage) -> bool:
    """Whether every offset of the segment is of the epoch that ``lineage`` assigns to it."""
    own = Lineage(metadata.segment_leader_epochs).with_data()
    return own == lineage.entries_in(metadata.start_offset, metadata.end_offset + 1).with_data()
