"""RemoteStorageManager: what moves a segment's bytes promises (remote-tiering 4; KIP-405)."""

from typing import Protocol

from tierd.model import ByteRange, IndexType, LogSegmentData, RemoteLogSegmentMetadata


class RemoteStorageManager(Protocol):
    """Moves segment bytes and knows nothing of metadata. Every call may safely be repeated.

    Every call raises ``RemoteStorageError`` or one of its kinds, and nothing else but a cancellation.
    """

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        """Return what lets this storage find the segment's objects again, whatever is configured by then.

        Recorded before the first byte leaves, so that a changed prefix orphans not even an interrupted copy.
        """

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Store every artefact of the segment durably, the manifest last; return its custom metadata.

        Objects that hold the same content already are success. Cancelled or failed, it leaves no unfinished
        multipart upload that it could still abort, and perhaps some objects, but never a manifest without them.

        Raises:
            RemoteConflictError: an object exists already with other content.
            RemoteIntegrityError: the bytes sent were not those of ``data.log_checksums``.
        """

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Return the bytes of the log in ``byte_range``, clipped at the end of the log; empty when past it.

        Raises:
            RemoteResourceNotFoundError: the object is not there.
        """

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one artefact, checked against its checksum.

        Raises:
            RemoteIndexAbsentError: the segment never had it; normal for ``TRANSACTION``.
            RemoteResourceNotFoundError: the object is not there.
            RemoteIntegrityError: its bytes are not those that were stored.
        """

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove every object of the segment, the manifest first; one already gone is no error."""
