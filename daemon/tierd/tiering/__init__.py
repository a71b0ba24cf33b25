"""Tiering of partitions: hold, copy, sweep, expire, read, verify, repair and rebuild.

Decisions are plain functions over values; the tasks that act on them are run by a supervisor from above.
"""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.tiering.assembly import FollowedLogDirs, Tiering, assemble
    from tierd.tiering.auditing.deep_sample import DeepChoice, DeepSample
    from tierd.tiering.auditing.explanation import Explanation, OffsetPlace, explain
    from tierd.tiering.auditing.orphan_inspector import OrphanInspector
    from tierd.tiering.auditing.recopy import RemoteLogCopy
    from tierd.tiering.auditing.repair_plan import RepairKind
    from tierd.tiering.auditing.repair_planner import LEAST_AGE_S, RepairPlanner
    from tierd.tiering.auditing.segment_check import SegmentCheck
    from tierd.tiering.auditing.tier_audit import TierAudit
    from tierd.tiering.auditing.tier_findings import AuditLimits, Finding, Severity
    from tierd.tiering.auditing.tier_repair import RepairOutcome, RepairResult, RepairTools, TierRepair
    from tierd.tiering.capacity import Capacity, ManagerStatistics, RateQuota, Slots
    from tierd.tiering.copying.copy_task import CopyTask
    from tierd.tiering.copying.segment_copy import SegmentCopy, Writer
    from tierd.tiering.inventory import (
        ManifestFacts,
        PartitionInventory,
        TierContents,
        partition_inventory,
        sum_contents,
    )
    from tierd.tiering.local.held_directories import linked_offsets
    from tierd.tiering.local.hold import SegmentHold
    from tierd.tiering.local.log_offsets import BrokerLogOffsets, LogOffsets, OwnLogOffsets
    from tierd.tiering.partition_status import PartitionStatus
    from tierd.tiering.reading.fetch_service import FetchService, FetchStatistics, open_fetch_service
    from tierd.tiering.reading.fetch_task import BatchGroup, FetchTask
    from tierd.tiering.reading.offset_places import OffsetSpec, named_offset, search_timed_out
    from tierd.tiering.reading.tiered_log import Tier, TieredLog
    from tierd.tiering.rebuilding.bucket import UNAUTHENTICATED, BucketReader
    from tierd.tiering.rebuilding.metadata_rebuild import MetadataRebuild, RebuildReport
    from tierd.tiering.recorder import SilentRecorder
    from tierd.tiering.remote_log_manager import CopyOutcome, RemoteLogManager
    from tierd.tiering.removing.deletion import SegmentDeletion
    from tierd.tiering.removing.expiring.expiration_plan import ExpirationPlan
    from tierd.tiering.removing.expiring.expiration_task import ExpirationTask
    from tierd.tiering.removing.expiring.local_view import facts_of
    from tierd.tiering.removing.expiring.partition_expiration import LocalFacts, partition_expiration
    from tierd.tiering.removing.ledger import DeletionLedger, LedgerEntry, LedgerStep, read_ledger, read_newest
    from tierd.tiering.removing.left_deletions import partitions_left
    from tierd.tiering.removing.partition_removal import PartitionRemover
    from tierd.tiering.removing.removals import ExpireOutcome, Removals
    from tierd.tiering.removing.undelete_plan import TakenBack
    from tierd.tiering.replicas.replica import LogDirState, Replica, ReplicaTable
    from tierd.tiering.roles.task_factory import TieringContext, TieringSettings
    from tierd.tiering.segment_writes import SegmentWrites
    from tierd.tiering.standbys.standby_audit import StandbyAudit
    from tierd.tiering.stored_tier import StoredTier
    from tierd.tiering.supervision import PartitionTask, PassiveSupervisor, Supervisor, TaskHealth
    from tierd.tiering.topic_policy import TopicPolicy
else:
    __getattr__ = exports_on_demand(__name__)
