"""DeletableStorage: the calls that deletion and undelete make to a remote storage."""

from typing import Protocol

from tierd.model import RemoteLogSegmentMetadata
from tierd.remote import Tombstone


class DeletableStorage(Protocol):
    """Part of a remote storage that deletion uses. Every call may be repeated and raises ``RemoteStorageError``."""

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove every object of the segment, the tombstone last."""

    async def write_tombstone(self, metadata: RemoteLogSegmentMetadata, tombstone: Tombstone) -> None:
        """Create the tombstone; one that is there already is success."""

    async def read_tombstone(self, metadata: RemoteLogSegmentMetadata) -> Tombstone | None:
        """Return the tombstone, None when there is none."""

    async def remove_tombstone(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove the tombstone; none is success."""

    async def any_object_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if log, indexes, manifest or tombstone is there."""

    async def objects_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if log, indexes and manifest are all there."""
