"""RemoteStorageManager: what moves a segment's bytes promises (remote-tiering 4; KIP-405)."""

from collections.abc import AsyncGenerator
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

        Repeated, it is success over a finished segment of the same content, and overwrites what an attempt of the same
        id left unfinished, whatever its content. The caller sees to it that no two attempts of one id run at a time.
        Cancelled or failed, it leaves no unfinished multipart upload that it could still abort, and perhaps some
        objects, but never a manifest without them.

        Raises:
            RemoteConflictError: a finished segment of the same id has other content; it stays as it is.
            RemoteIntegrityError: the bytes sent were not those of ``data.log_checksums``.
        """

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Return the bytes of the log in ``byte_range``, clipped at the end of the log; empty when past it.

        Raises:
            RemoteResourceNotFoundError: the object is not there, whatever the range.
        """

    def stream_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the log's bytes from ``start_position`` on, in order, in bounded pieces: the form for large ranges.

        The next piece is fetched when it is asked for. The caller closes the generator when it stops early.

        Args:
            metadata: whose log.
            start_position: of the first byte; nothing is yielded when it is at or past the end of the log.
            end_position: of the last byte, clipped at the end of the log; None: all the rest.

        Raises:
            RemoteResourceNotFoundError: the object is not there, whatever the range.
            ValueError: a negative start, or an end before it.
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
