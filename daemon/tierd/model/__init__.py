"""Values that all rooms share: identities, ranges, lineage, timestamps, and a remote segment with its states."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.model.block_checksums import CHECKSUM_BLOCK_BYTES, BlockChecksums
    from tierd.model.identifiers import (
        PartitionKey,
        RemoteLogSegmentId,
        TopicIdPartition,
        TopicPartition,
        is_topic_name,
        random_id,
        uuid_from_text,
        uuid_to_text,
    )
    from tierd.model.isolation_level import IsolationLevel
    from tierd.model.lineage import EpochEndOffset, EpochEntry, Lineage, segment_epochs_problem
    from tierd.model.partition_delete import RemotePartitionDeleteMetadata, RemotePartitionDeleteState
    from tierd.model.ranges import ByteRange, OffsetRange
    from tierd.model.remote_log_segment import (
        IndexType,
        LogSegmentData,
        RemoteLogSegmentMetadata,
        RemoteLogSegmentMetadataUpdate,
        RemoteLogSegmentState,
        SoftDelete,
    )
    from tierd.model.timestamp_ranges import BlockTimestamps, TimestampOffset, TimestampRange
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "CHECKSUM_BLOCK_BYTES",
    "BlockChecksums",
    "BlockTimestamps",
    "ByteRange",
    "EpochEndOffset",
    "EpochEntry",
    "IndexType",
    "IsolationLevel",
    "Lineage",
    "LogSegmentData",
    "OffsetRange",
    "PartitionKey",
    "RemoteLogSegmentId",
    "RemoteLogSegmentMetadata",
    "RemoteLogSegmentMetadataUpdate",
    "RemoteLogSegmentState",
    "RemotePartitionDeleteMetadata",
    "RemotePartitionDeleteState",
    "SoftDelete",
    "TimestampOffset",
    "TimestampRange",
    "TopicIdPartition",
    "TopicPartition",
    "is_topic_name",
    "random_id",
    "segment_epochs_problem",
    "uuid_from_text",
    "uuid_to_text",
]
