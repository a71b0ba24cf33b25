"""Plans of restores: pure decisions from metadata, catalogue and arguments."""

from tierd.restore.plan.joined_sources import JoinSource, has_same_epochs, join_sources
from tierd.restore.plan.known_ends import KnownEnd, committed_ends
from tierd.restore.plan.lineage_authority import newest_segment, restored_lineage
from tierd.restore.plan.log_branches import LogBranch, ends_on_newest
from tierd.restore.plan.node_plan import (
    CataloguedSnapshot,
    NodeFacts,
    NodePlan,
    had_metadata,
    plan_node,
    producer_id_problem,
)
from tierd.restore.plan.partition_plan import (
    PartitionPlan,
    PlanFinding,
    PlanSeverity,
    RestoreMode,
    SegmentPart,
)
from tierd.restore.plan.partition_planner import ExpiredSegments, PlanRequest, RestoreFacts, plan_partition
from tierd.restore.plan.retention_hold import (
    HELD_SETTINGS,
    HeldRetention,
    change_command,
    hold_command,
    is_held,
    lift_command,
    lifting_changes,
    settings_before,
)
from tierd.restore.plan.tombstone_age import (
    DELETE_RETENTION_MS,
    delete_retention_ms_of,
    longest_pause_ms,
    longest_read_ms,
)
from tierd.restore.plan.topic_retention import TopicRetention

__all__ = [
    "DELETE_RETENTION_MS",
    "HELD_SETTINGS",
    "CataloguedSnapshot",
    "ExpiredSegments",
    "HeldRetention",
    "JoinSource",
    "KnownEnd",
    "LogBranch",
    "NodeFacts",
    "NodePlan",
    "PartitionPlan",
    "PlanFinding",
    "PlanRequest",
    "PlanSeverity",
    "RestoreFacts",
    "RestoreMode",
    "SegmentPart",
    "TopicRetention",
    "change_command",
    "committed_ends",
    "delete_retention_ms_of",
    "ends_on_newest",
    "had_metadata",
    "has_same_epochs",
    "hold_command",
    "is_held",
    "join_sources",
    "lift_command",
    "lifting_changes",
    "longest_pause_ms",
    "longest_read_ms",
    "newest_segment",
    "plan_node",
    "plan_partition",
    "producer_id_problem",
    "restored_lineage",
    "settings_before",
]
