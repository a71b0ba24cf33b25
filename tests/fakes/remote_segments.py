"""Remote segments for tests, given by their offsets and epochs."""

from collections.abc import Mapping
from uuid import UUID, uuid4

from tierd.model import (
    EpochEntry,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)

PARTITION = TopicIdPartition(UUID(int=7), "orders", 0)
SESSION = UUID(int=0x5E55)
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def segment(
    start_offset: int,
    end_offset: int,
    epochs: Mapping[int, int] | int = 0,
    *,
    partition: TopicIdPartition = PARTITION,
    segment_id: UUID | None = None,
    size_bytes: int = 1024,
    leader_epoch: int = 5,
    session_id: UUID = SESSION,
    custom_metadata: bytes | None = None,
    txn_index_empty: bool = False,
) -> RemoteLogSegmentMetadata:
    """Build a segment whose copy has begun; ``epochs`` is one epoch, or the first offset of each."""
    starts = {epochs: start_offset} if isinstance(epochs, int) else epochs
    return RemoteLogSegmentMetadata(
        segment=RemoteLogSegmentId(partition, segment_id or uuid4()),
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=-1,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        size_bytes=size_bytes,
        segment_leader_epochs=tuple(EpochEntry(epoch, start) for epoch, start in starts.items()),
        leader_epoch=leader_epoch,
        session_id=session_id,
        custom_metadata=custom_metadata,
        txn_index_empty=txn_index_empty,
    )


def step(
    metadata: RemoteLogSegmentMetadata,
    state: RemoteLogSegmentState,
    *,
    custom_metadata: bytes | None = None,
    event_timestamp_ms: int = 1_700_000_000_001,
) -> RemoteLogSegmentMetadataUpdate:
    """Build the update of the segment to ``state``."""
    return RemoteLogSegmentMetadataUpdate(
        segment=metadata.segment,
        state=state,
        event_timestamp_ms=event_timestamp_ms,
        broker_id=1,
        custom_metadata=custom_metadata,
    )
