"""CopiedPart: the part of a copied segment that is of one lineage, with which a local log is compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from tierd.log import OffsetIndex, PartitionScan
from tierd.metadata import OwnBranch
from tierd.model import ByteRange, RemoteLogSegmentMetadata, RemoteLogSegmentState


@dataclass(frozen=True, slots=True)
class CopiedPart:
    """First offsets of a readable segment, up to where another epoch of the lineage begins.

    Attributes:
        metadata: the row of the segment.
        end_offset: the last offset of the part, inclusive; of a segment that is of the lineage throughout, its last.
    """

    metadata: RemoteLogSegmentMetadata
    end_offset: int

    @classmethod
    def of(cls, branch: OwnBranch, metadata: RemoteLogSegmentMetadata) -> Self | None:
        """Return the part of ``metadata`` that is of the branch; None where its first records are not."""
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            return None
        first = metadata.first_readable_offset
        end = branch.readable_end(metadata, first)
        return cls(metadata, end - 1) if end > first else None

    @property
    def start_offset(self) -> int:
        """Return the base offset of the segment."""
        return self.metadata.start_offset

    def may_be_compared(self, scan: PartitionScan) -> bool:
        """Return whether the local log begins before the part ends; an older part has expired locally."""
        return bool(scan.segments) and scan.segments[0].base_offset <= self.end_offset

    def tail(self, index: OffsetIndex, size_bytes: int) -> ByteRange | None:
        """Return where the part's last ``size_bytes`` lie in the log, whole batches and a little more; None: nowhere.

        ``index``: the segment's. What lies behind the part is cut off at the second entry above it: an entry is of
        some batch behind its position, so the first one may still begin inside the part.
        """
        above = [entry.position for entry in index.entries() if entry.offset > self.end_offset]
        stop = above[1] if len(above) > 1 else self.metadata.size_bytes
        start = max((entry.position for entry in index.entries() if entry.position <= stop - size_bytes), default=0)
        return ByteRange(start, stop - 1) if start < stop else None


def newest_part(branch: OwnBranch) -> CopiedPart | None:
    """Return the part that ends last, by the epochs alone."""
    for entry in reversed(branch.lineage.entries):
        state = branch.view.epochs.get(entry.epoch)
        for segment_id in reversed(state.ids if state else ()):
            part = CopiedPart.of(branch, branch.view.segments[segment_id])
            if part is not None and part.end_offset >= entry.start_offset:
                return part
    return None


def parts_from_the_newest(branch: OwnBranch) -> Iterator[CopiedPart]:
    """Yield the parts of all readable segments, also of segments that longer ones hide, by descending end."""
    parts = (CopiedPart.of(branch, metadata) for metadata in branch.finished)
    found = [part for part in parts if part is not None]
    yield from sorted(found, key=lambda part: (part.end_offset, part.start_offset), reverse=True)
