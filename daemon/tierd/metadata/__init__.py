"""Metadata of remote segments: the leader's immutable views in memory, written through to a key-value store.

First durable, then visible; every batch carries the leader epoch and session of its writer, so that the store itself
fences a stale one (remote-tiering 2 to 7).
"""

from tierd.metadata.connector import MetadataConnector, MetadataOpening, metadata_keys
from tierd.metadata.kv import (
    Batch,
    Delete,
    DeletePrefix,
    Expect,
    ExpectPresent,
    KeyValueStore,
    MemoryKeyValueStore,
    Put,
)
from tierd.metadata.leading.led_partitions import MetadataManagerSettings
from tierd.metadata.leading.metadata_manager import RemoteLogMetadataManager
from tierd.metadata.leading.metadata_statistics import MetadataStatistics
from tierd.metadata.leases import Lease, acquire_lease, release_lease, renew_lease
from tierd.metadata.opening import open_metadata
from tierd.metadata.rows.key_factory import MetadataKeyFactory
from tierd.metadata.rows.newest_epochs import TierEpochs
from tierd.metadata.rows.partition_row import RECORD_IN_DOUBT, Claim, PartitionRow
from tierd.metadata.rows.serde import decode_segment, encode_segment
from tierd.metadata.stored.partition_deletes import PartitionBeingDeleted, partitions_being_deleted
from tierd.metadata.stored.segment_changes import SegmentChange, changes
from tierd.metadata.stored.stored_partitions import list_partitions, read_claims, read_partition, read_segment
from tierd.metadata.views.incarnations import copied_last_ms
from tierd.metadata.views.lineage import effective_lineage
from tierd.metadata.views.overlaps import covered_copies, overlaps
from tierd.metadata.views.own_branch import OwnBranch, ReadableRange
from tierd.metadata.views.partition_view import PartitionView
from tierd.metadata.views.view_rows import rows_of
from tierd.metadata.whole_store.partition_rebuild import (
    BucketLogStart,
    BucketSegment,
    RebuildProblem,
    RebuildSeverity,
    differences,
    rebuild_partition,
)
from tierd.metadata.whole_store.store_filling import FillingSource, StoreFilling, holds_segments
from tierd.metadata.whole_store.store_identity import is_tier_known, read_store_identity, remember_tier, store_identity
from tierd.metadata.whole_store.transfer import TransferCounts, export_lines, import_lines

__all__ = [
    "RECORD_IN_DOUBT",
    "Batch",
    "BucketLogStart",
    "BucketSegment",
    "Claim",
    "Delete",
    "DeletePrefix",
    "Expect",
    "ExpectPresent",
    "FillingSource",
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
    "differences",
    "effective_lineage",
    "encode_segment",
    "export_lines",
    "holds_segments",
    "import_lines",
    "is_tier_known",
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
]
