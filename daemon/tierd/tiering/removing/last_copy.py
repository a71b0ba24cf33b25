"""Tells if objects that the metadata does not count as readable are the last copy of their records."""

from collections.abc import Awaitable, Callable
from typing import Final

from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState

KEPT: Final = "it was never finished, as the metadata has it, yet it is whole, and no other segment has all its offsets"
KEPT_REMEDY: Final = (
    "run tierd rebuild-metadata if the metadata store lost writes, as one from a backup has; otherwise nothing: "
    "it goes once its offsets are copied again"
)


async def is_last_copy(
    metadata: RemoteLogSegmentMetadata,
    view: PartitionView,
    objects_present: Callable[[RemoteLogSegmentMetadata], Awaitable[bool]],
) -> bool:
    """Return whether a segment is whole in the store, and has offsets that no readable segment has there.

    Metadata that lost its last writes may count a segment as readable whose objects a compaction has replaced and a
    later deletion has removed. So the objects of the readable segments are looked for, too.

    Args:
        metadata: the segment; no reader finds it.
        view: of its partition.
        objects_present: tells if log, indexes and manifest of a segment are all there.

    Raises:
        RemoteStorageError: the store did not answer.
    """
    at = max(metadata.first_readable_offset, view.log_start_offset or 0)
    if at > metadata.end_offset or not await objects_present(metadata):
        return False
    for other in _readable(view):
        if other.first_readable_offset > at or at > metadata.end_offset:
            break
        if other.end_offset >= at and await objects_present(other):
            at = other.end_offset + 1
    return at <= metadata.end_offset


def _readable(view: PartitionView) -> list[RemoteLogSegmentMetadata]:
    """Return the segments that readers find, ascending."""
    finished = (m for m in view.list() if m.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    return sorted(filter(view.is_readable, finished), key=lambda m: m.first_readable_offset)
