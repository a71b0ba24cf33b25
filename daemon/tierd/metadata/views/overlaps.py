"""Overlaps: pairs of readable segments in which one leader copied the same offsets twice. Decisions only.

``tierd verify`` and a rebuild from the bucket share these decisions. Normal operation makes the following, which are
no overlaps:

- a copy that covers earlier ones, as after the broker's cleaner has merged small segments: readers find the longer
  copy only (docs/decisions/0007);
- copies of two leaders, whose logs need not roll at the same offsets;
- a segment that goes on with a branch of the log that was abandoned: its offsets are copied again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from tierd.metadata.views.own_branch import OwnBranch
from tierd.model import OffsetRange, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two readable segments, the second of which begins inside the first."""

    earlier: RemoteLogSegmentMetadata
    later: RemoteLogSegmentMetadata

    @property
    def offsets(self) -> OffsetRange:
        """Return the offsets that both segments hold."""
        return OffsetRange(self.later.first_readable_offset, min(self.earlier.end_offset, self.later.end_offset))


def overlaps(branch: OwnBranch) -> Iterator[Overlap]:
    """Yield every segment that overlaps an earlier one of the same leader, ascending."""
    furthest: dict[int, RemoteLogSegmentMetadata] = {}
    for metadata in branch.finished:
        if not branch.is_whole(metadata) or not branch.view.is_readable(metadata):
            continue
        earlier = furthest.get(metadata.leader_epoch)
        if earlier is not None and _share_offsets(earlier, metadata):
            yield Overlap(earlier, metadata)
        if earlier is None or metadata.end_offset > earlier.end_offset:
            furthest[metadata.leader_epoch] = metadata


def covered_copies(branch: OwnBranch) -> frozenset[UUID]:
    """Return the ids of finished segments of the branch all of whose offsets readers find in other segments.

    The other segments are of the branch from end to end too, so that their producer snapshots can take the place of
    those of the covered ones.
    Where the broker's cleaner makes one log of segments that were copied and of one that was not, the copy of that log
    covers the earlier ones.
    """
    hidden = (metadata for metadata in branch.finished if not branch.view.is_readable(metadata))
    return frozenset(m.segment.id for m in hidden if branch.is_whole(m) and _is_answered(branch, m))


def _is_answered(branch: OwnBranch, metadata: RemoteLogSegmentMetadata) -> bool:
    """Return True if readers find every offset of the segment, in segments that are of the branch from end to end."""
    at = metadata.first_readable_offset
    for answered in branch.readable_ranges(at, metadata.end_offset + 1):
        if answered.start_offset != at or not branch.is_whole(answered.metadata):
            return False
        at = answered.end_offset
    return at > metadata.end_offset


def _share_offsets(earlier: RemoteLogSegmentMetadata, later: RemoteLogSegmentMetadata) -> bool:
    shared = {e.epoch for e in earlier.segment_leader_epochs} & {e.epoch for e in later.segment_leader_epochs}
    return later.first_readable_offset <= earlier.end_offset and bool(shared)
