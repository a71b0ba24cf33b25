"""The delete cycle of one segment: recorded as begun, objects removed, recorded as done."""

from dataclasses import replace

from tierd.clock import Clock
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.remote import RemoteStorageManager
from tierd.tiering.recorder import TieringRecorder


class SegmentDeletion:
    """Deletes remote segments. Interrupted anywhere, the row says what is left to do, and it may be repeated."""

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadataManager,
        remote: RemoteStorageManager,
        recorder: TieringRecorder,
        clock: Clock,
        broker_id: int,
    ) -> None:
        self._metadata = metadata
        self._remote = remote
        self._recorder = recorder
        self._clock = clock
        self._broker_id = broker_id

    async def delete(self, metadata: RemoteLogSegmentMetadata, *, custom_metadata: bytes | None = None) -> None:
        """Run the whole cycle.

        Args:
            metadata: the segment, in any state but finished deletion.
            custom_metadata: what finds the objects, where the stored value could not be replaced by it.

        Raises:
            TierError: it stopped half-way; a later sweep repeats it.
        """
        await self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        await self.delete_objects(metadata, custom_metadata=custom_metadata)
        await self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

    async def delete_objects(self, metadata: RemoteLogSegmentMetadata, *, custom_metadata: bytes | None = None) -> None:
        """Remove the objects only.

        Raises:
            RemoteStorageError: some are still there.
        """
        topic = metadata.segment.topic_id_partition.topic
        self._recorder.delete_requested(topic)
        found_by = metadata if custom_metadata is None else replace(metadata, custom_metadata=custom_metadata)
        try:
            await self._remote.delete_log_segment_data(found_by)
        except Exception:
            self._recorder.delete_failed(topic)
            raise

    async def _step(self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> None:
        update = metadata.advance(state, event_timestamp_ms=self._clock.now_ms(), broker_id=self._broker_id)
        await self._metadata.update(update)
