"""Metadata of remote segments: the leader's immutable views in memory, written through to a key-value store.

First durable, then visible; every batch carries the leader epoch and session of its writer, so that the store itself
fences a stale one (remote-tiering 2 to 7).
"""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.metadata.kv import (
        Batch,
        DeadlineKeyValueStore,
        Delete,
        DeletePrefix,
        Expect,
        ExpectPresent,
        KeyValueStore,
        MemoryKeyValueStore,
        Put,
    )
    from tierd.metadata.leading import MetadataManagerSettings, MetadataStatistics, RemoteLogMetadataManager
    from tierd.metadata.leases import Lease, acquire_lease, release_lease, renew_lease
    from tierd.metadata.opening import MetadataConnector, MetadataOpening, metadata_keys, open_metadata
    from tierd.metadata.rows import (
        RECORD_IN_DOUBT,
        Claim,
        MetadataKeyFactory,
        PartitionRow,
        TierEpochs,
        decode_segment,
        decoded_value,
        encode_segment,
        encode_value,
        int_field,
        text_field,
    )
    from tierd.metadata.stored import (
        FollowedPartitions,
        PartitionBeingDeleted,
        SegmentChange,
        changes,
        list_partitions,
        partitions_being_deleted,
        read_claims,
        read_partition,
        read_segment,
    )
    from tierd.metadata.views import (
        OwnBranch,
        PartitionView,
        ReadableRange,
        copied_last_ms,
        covered_copies,
        effective_lineage,
        overlaps,
        rows_of,
    )
    from tierd.metadata.whole_store import (
        BucketLogStart,
        BucketSegment,
        FillingSource,
        RebuildProblem,
        RebuildSeverity,
        StoreFilling,
        TransferCounts,
        differences,
        export_lines,
        holds_segments,
        import_lines,
        is_tier_known,
        key_secret,
        read_store_identity,
        rebuild_partition,
        remember_tier,
        store_identity,
    )
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "RECORD_IN_DOUBT",
    "Batch",
    "BucketLogStart",
    "BucketSegment",
    "Claim",
    "DeadlineKeyValueStore",
    "Delete",
    "DeletePrefix",
    "Expect",
    "ExpectPresent",
    "FillingSource",
    "FollowedPartitions",
    "KeyValueStore",
    "Lease",
    "MemoryKeyValueStore",
    "MetadataConnector",
    "MetadataKeyFactory",
    "MetadataManagerSettings",
    "MetadataOpening",
    "MetadataStatistics",
    "OwnBranch",
    "PartitionBeingDeleted",
    "PartitionRow",
    "PartitionView",
    "Put",
    "ReadableRange",
    "RebuildProblem",
    "RebuildSeverity",
    "RemoteLogMetadataManager",
    "SegmentChange",
    "StoreFilling",
    "TierEpochs",
    "TransferCounts",
    "acquire_lease",
    "changes",
    "copied_last_ms",
    "covered_copies",
    "decode_segment",
    "decoded_value",
    "differences",
    "effective_lineage",
    "encode_segment",
    "encode_value",
    "export_lines",
    "holds_segments",
    "import_lines",
    "int_field",
    "is_tier_known",
    "key_secret",
    "list_partitions",
    "metadata_keys",
    "open_metadata",
    "overlaps",
    "partitions_being_deleted",
    "read_claims",
    "read_partition",
    "read_segment",
    "read_store_identity",
    "rebuild_partition",
    "release_lease",
    "remember_tier",
    "renew_lease",
    "rows_of",
    "store_identity",
    "text_field",
]
