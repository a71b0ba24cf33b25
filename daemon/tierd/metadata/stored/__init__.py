"""Partitions as the store has them, read by followers and commands that hold no claim."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.metadata.stored.followed_partitions import FollowedPartitions
    from tierd.metadata.stored.partition_deletes import (
        PartitionBeingDeleted,
        deleted_partitions,
        forget_deleted_partitions,
        partitions_being_deleted,
    )
    from tierd.metadata.stored.segment_changes import SegmentChange, changes
    from tierd.metadata.stored.stored_partitions import (
        list_partitions,
        read_claims,
        read_partition,
        read_segment,
        read_snapshot,
    )
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "FollowedPartitions",
    "PartitionBeingDeleted",
    "SegmentChange",
    "changes",
    "deleted_partitions",
    "forget_deleted_partitions",
    "list_partitions",
    "partitions_being_deleted",
    "read_claims",
    "read_partition",
    "read_segment",
    "read_snapshot",
]
