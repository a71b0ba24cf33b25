"""UnusedStorage: a remote storage manager for tests that call a part of it."""

from collections.abc import AsyncGenerator

from tierd.model import ByteRange, IndexType, LogSegmentData, RemoteLogSegmentMetadata


class UnusedStorage:
    """``RemoteStorageManager`` whose calls fail the test; a fake replaces those that its test makes."""

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        """Refuse to tell what the remote storage keeps with a segment."""
        raise NotImplementedError

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Refuse to copy."""
        raise NotImplementedError

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Refuse to read a log."""
        raise NotImplementedError

    def stream_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Refuse to stream."""
        raise NotImplementedError

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Refuse to read an index."""
        raise NotImplementedError

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Refuse to delete."""
        raise NotImplementedError
