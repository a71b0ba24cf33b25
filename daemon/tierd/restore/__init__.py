"""Restore: what is in the tier comes back as log dirs, as topics of a live cluster, as state stores (DESIGN 13)."""

from importlib import import_module
from typing import TYPE_CHECKING

from tierd.restore.catalogue import (
    BrokerTopics,
    CataloguedNode,
    CataloguedTopic,
    CatalogueKeeper,
    CatalogueStorage,
    ClusterSnapshot,
    LocalPartitions,
    LogDirTopics,
    PositionsAt,
    TopicSource,
    parse_cluster_snapshot,
    positions_at,
    read_positions_at,
)
from tierd.restore.changelog.changelog_errors import RestoreError, StoreFailedError
from tierd.restore.changelog.reader.changelog_restorer import ChangelogRestorer
from tierd.restore.changelog.reader.restore_progress import ChangelogProgress, ProgressReporter
from tierd.restore.changelog.reader.restore_task import RestoreTask
from tierd.restore.changelog.sources.composite_source import CompositeSource
from tierd.restore.changelog.sources.local_changelog import LocalEnd
from tierd.restore.changelog.sources.local_log_source import LocalChangelogs
from tierd.restore.changelog.sources.partitioned_source import PartitionedSource
from tierd.restore.changelog.sources.remote_changelog import RemoteTier
from tierd.restore.changelog.sources.remote_segment_source import RemoteChangelogs, RemoteSegmentSource
from tierd.restore.drill import (
    DrillCommand,
    DrilledPartition,
    DrillHistory,
    DrillOutcome,
    DrillProofs,
    DrillScratch,
    PartitionDrill,
    Proof,
    has_something,
    held_scratch,
    rotation,
)
from tierd.restore.journal import Journal, JournalOfAnotherJobError, read_job, read_steps
from tierd.restore.log_dir import (
    METADATA_DIRECTORY,
    HeldLogDir,
    JoinSourceReader,
    LogDirRequest,
    LogDirTarget,
    RestoredPartition,
    has_restored,
    held_log_dir,
    in_thread,
    restore_cluster_metadata,
    restore_partition,
    write_identity,
)
from tierd.restore.plan import (
    HELD_SETTINGS,
    CataloguedSnapshot,
    ExpiredSegments,
    HeldRetention,
    JoinSource,
    KnownEnd,
    NodeFacts,
    NodePlan,
    PartitionPlan,
    PlanFinding,
    PlanRequest,
    PlanSeverity,
    RestoreFacts,
    RestoreMode,
    TopicRetention,
    change_command,
    committed_ends,
    delete_retention_ms_of,
    had_metadata,
    hold_command,
    is_held,
    join_sources,
    known_ends,
    lift_command,
    lifting_changes,
    newest_segment,
    plan_node,
    plan_partition,
    producer_id_problem,
    restored_lineage,
    settings_before,
)
from tierd.restore.stores.rocks_store import RocksStore
from tierd.restore.stores.sqlite_store import SqliteStore
from tierd.restore.streams.streams_restore import RestoredStreamsStore
from tierd.restore.streams.streams_target import StreamsTarget
from tierd.restore.streams.topology_file import load_streams_topology

if TYPE_CHECKING:
    from tierd.restore.changelog.sources.kafka_source import KafkaSource
    from tierd.restore.live_cluster import (
        OFFSET_MAP_FILE,
        AcknowledgedCount,
        GroupOutcome,
        PartitionOutcome,
        PlannedPosition,
        RestoredTopic,
        RestoreProgress,
        TargetCluster,
        TopicRestore,
        log_bounds,
        open_target,
        plan_positions,
        read_offset_map,
        set_positions,
        targets_of,
        topic_settings,
    )

__all__ = [
    "HELD_SETTINGS",
    "METADATA_DIRECTORY",
    "OFFSET_MAP_FILE",
    "AcknowledgedCount",
    "BrokerTopics",
    "CatalogueKeeper",
    "CatalogueStorage",
    "CataloguedNode",
    "CataloguedSnapshot",
    "CataloguedTopic",
    "ChangelogProgress",
    "ChangelogRestorer",
    "ClusterSnapshot",
    "CompositeSource",
    "DrillCommand",
    "DrillHistory",
    "DrillOutcome",
    "DrillProofs",
    "DrillScratch",
    "DrilledPartition",
    "ExpiredSegments",
    "GroupOutcome",
    "HeldLogDir",
    "HeldRetention",
    "JoinSource",
    "JoinSourceReader",
    "Journal",
    "JournalOfAnotherJobError",
    "KafkaSource",
    "KnownEnd",
    "LocalChangelogs",
    "LocalEnd",
    "LocalPartitions",
    "LogDirRequest",
    "LogDirTarget",
    "LogDirTopics",
    "NodeFacts",
    "NodePlan",
    "PartitionDrill",
    "PartitionOutcome",
    "PartitionPlan",
    "PartitionedSource",
    "PlanFinding",
    "PlanRequest",
    "PlanSeverity",
    "PlannedPosition",
    "PositionsAt",
    "ProgressReporter",
    "Proof",
    "RemoteChangelogs",
    "RemoteSegmentSource",
    "RemoteTier",
    "RestoreError",
    "RestoreFacts",
    "RestoreMode",
    "RestoreProgress",
    "RestoreTask",
    "RestoredPartition",
    "RestoredStreamsStore",
    "RestoredTopic",
    "RocksStore",
    "SqliteStore",
    "StoreFailedError",
    "StreamsTarget",
    "TargetCluster",
    "TopicRestore",
    "TopicRetention",
    "TopicSource",
    "change_command",
    "committed_ends",
    "delete_retention_ms_of",
    "had_metadata",
    "has_restored",
    "has_something",
    "held_log_dir",
    "held_scratch",
    "hold_command",
    "in_thread",
    "is_held",
    "join_sources",
    "known_ends",
    "lift_command",
    "lifting_changes",
    "load_streams_topology",
    "log_bounds",
    "newest_segment",
    "open_target",
    "parse_cluster_snapshot",
    "plan_node",
    "plan_partition",
    "plan_positions",
    "positions_at",
    "producer_id_problem",
    "read_job",
    "read_offset_map",
    "read_positions_at",
    "read_steps",
    "restore_cluster_metadata",
    "restore_partition",
    "restored_lineage",
    "rotation",
    "set_positions",
    "settings_before",
    "targets_of",
    "topic_settings",
    "write_identity",
]

# Modules of Kafka's protocol take 0.3 s and 27 MB to import.
_KAFKA_SOURCE = "KafkaSource"
_OF_LIVE_CLUSTER = frozenset(
    {
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
        "topic_settings",
    }
)


def __getattr__(name: str) -> object:
    """Import a name that needs Kafka's protocol when it is first asked for (PEP 562)."""
    if name == _KAFKA_SOURCE:
        return getattr(import_module("tierd.restore.changelog.sources.kafka_source"), name)
    if name not in _OF_LIVE_CLUSTER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tierd.restore.live_cluster"), name)
