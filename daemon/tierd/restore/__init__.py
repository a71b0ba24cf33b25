"""Restore: what is in the tier comes back as log dirs, as topics of a live cluster, as state stores (DESIGN 13)."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.restore.catalogue.catalogue_keeper import CatalogueKeeper
    from tierd.restore.catalogue.catalogue_objects import CataloguedNode, CataloguedTopic
    from tierd.restore.catalogue.catalogue_reader import read_positions_at
    from tierd.restore.catalogue.catalogue_storage import CatalogueStorage
    from tierd.restore.catalogue.cluster_snapshot import ClusterSnapshot, parse_cluster_snapshot
    from tierd.restore.catalogue.local_partitions import LocalPartitions
    from tierd.restore.catalogue.positions_at import PositionsAt, positions_at
    from tierd.restore.catalogue.topic_sources import BrokerTopics, LogDirTopics, TopicSource
    from tierd.restore.changelog.changelog_errors import RestoreError, StoreFailedError
    from tierd.restore.changelog.reader.changelog_restorer import ChangelogRestorer
    from tierd.restore.changelog.reader.restore_progress import ChangelogProgress, ProgressReporter
    from tierd.restore.changelog.reader.restore_task import RestoreTask
    from tierd.restore.changelog.sources.composite_source import CompositeSource
    from tierd.restore.changelog.sources.kafka_source import KafkaSource
    from tierd.restore.changelog.sources.local_log_source import LocalChangelogs, LocalEnd
    from tierd.restore.changelog.sources.partitioned_source import PartitionedSource
    from tierd.restore.changelog.sources.remote_segment_source import RemoteChangelogs, RemoteSegmentSource, RemoteTier
    from tierd.restore.drill.drill_command import DrillCommand
    from tierd.restore.drill.drill_history import DrillHistory
    from tierd.restore.drill.drill_scratch import DrillScratch, held_scratch
    from tierd.restore.drill.drilled_partition import DrilledPartition, DrillOutcome, DrillProofs, rotation
    from tierd.restore.drill.partition_drill import PartitionDrill, Proof, has_something
    from tierd.restore.journal import Journal, JournalOfAnotherJobError, read_job, read_steps
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
    from tierd.restore.live_cluster.topic_settings import topic_settings
    from tierd.restore.log_dir.held_log_dir import HeldLogDir, LogDirTarget, held_log_dir
    from tierd.restore.log_dir.local_remains import JoinSourceReader
    from tierd.restore.log_dir.metadata_restore import METADATA_DIRECTORY, restore_cluster_metadata, write_identity
    from tierd.restore.log_dir.partition_restore import restore_partition
    from tierd.restore.log_dir.restore_journal import has_restored
    from tierd.restore.log_dir.restored_partition import LogDirRequest, RestoredPartition
    from tierd.restore.plan.joined_sources import JoinSource, join_sources
    from tierd.restore.plan.known_ends import KnownEnd, committed_ends, known_ends
    from tierd.restore.plan.log_branches import newest_segment, restored_lineage
    from tierd.restore.plan.node_plan import (
        CataloguedSnapshot,
        NodeFacts,
        NodePlan,
        had_metadata,
        plan_node,
        producer_id_problem,
    )
    from tierd.restore.plan.partition_plan import PartitionPlan, PlanFinding, PlanSeverity, RestoreMode
    from tierd.restore.plan.partition_planner import ExpiredSegments, PlanRequest, RestoreFacts, plan_partition
    from tierd.restore.plan.tombstone_age import delete_retention_ms_of
    from tierd.restore.plan.topic_retention import (
        HELD_SETTINGS,
        HeldRetention,
        TopicRetention,
        change_command,
        hold_command,
        is_held,
        lift_command,
        lifting_changes,
        settings_before,
    )
    from tierd.restore.stores.rocks_store import RocksStore
    from tierd.restore.stores.sqlite_store import SqliteStore
    from tierd.restore.streams.streams_restore import RestoredStreamsStore
    from tierd.restore.streams.streams_target import StreamsTarget
    from tierd.restore.streams.topology_file import load_streams_topology
else:
    __getattr__ = exports_on_demand(__name__)

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
