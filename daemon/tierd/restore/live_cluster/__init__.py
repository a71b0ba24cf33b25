"""Restore into a live cluster: committed records of the tier through the Kafka protocol, exactly once (DESIGN 13)."""

from tierd.restore.live_cluster.group_restore import (
    GroupOutcome,
    PlannedPosition,
    log_bounds,
    plan_positions,
    set_positions,
    targets_of,
)
from tierd.restore.live_cluster.offset_map import read_offset_map
from tierd.restore.live_cluster.restore_progress import OFFSET_MAP_FILE, RestoreProgress
from tierd.restore.live_cluster.target_cluster import TargetCluster, open_target
from tierd.restore.live_cluster.topic_restore import (
    AcknowledgedCount,
    PartitionOutcome,
    RestoredTopic,
    TopicRestore,
)

__all__ = [
    "OFFSET_MAP_FILE",
    "AcknowledgedCount",
    "GroupOutcome",
    "PartitionOutcome",
    "PlannedPosition",
    "RestoreProgress",
    "RestoredTopic",
    "TargetCluster",
    "TopicRestore",
    "log_bounds",
    "open_target",
    "plan_positions",
    "read_offset_map",
    "set_positions",
    "targets_of",
]
