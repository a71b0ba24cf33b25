"""RemoteStorageManager: the promise of a storage of segments (remote-tiering 4; KIP-405)."""

from collections.abc import AsyncGenerator
from typing import Protocol

from tierd.model import ByteRange, IndexType, LogSegmentData, RemoteLogSegmentMetadata


class RemoteStorageManager(Protocol):
    """Storage of the bytes of segments, without their metadata. Every call may safely be repeated.

    A call raises ``RemoteStorageError`` or one of its kinds.
    """

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        """Return bytes by which this storage finds the segment's objects again under a changed configuration.

        The caller records them before the first byte leaves, so that an interrupted copy is found after a change of the
        prefix too.
        """

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Store every artefact of the segment durably, the manifest last; return its custom metadata.

        A repetition over a finished segment of the same content succeeds. A repetition over an unfinished attempt of
        the same id overwrites its objects, whatever their content. The caller makes sure that no two attempts of one id
        run at a time. After a cancellation or a failure there may be objects without a manifest, but no manifest
        without its objects; multipart uploads were aborted where that was possible.

        Raises:
            RemoteConflictError: a finished segment of the same id has other content; it stays as it is.
            RemoteIntegrityError: the bytes sent were not those of ``data.log_checksums``.
        """

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Return the bytes of the log in ``byte_range``, clipped at the end of the log; empty past the end.

        Raises:
            RemoteResourceNotFoundError: the object is not there.
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
            RemoteResourceNotFoundError: the object is not there.
            ValueError: a negative start, or an end before it.
        """

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one artefact, checked against its checksum.

        Raises:
            RemoteIndexAbsentError: the segment never had it; normal for ``TRANSACTION``.
            RemoteResourceNotFoundError: the object is not there.
            RemoteIntegrityError: the bytes of the object are not those that were stored.
        """

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove every object of the segment; an object that is gone already is no error."""
