"""Composition and supervision: builds every object from the configuration, runs it, and stops it in order."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.app.checks.access_policy import access_policy
    from tierd.app.checks.check_online import check_online
    from tierd.app.checks.checklist import CheckStep
    from tierd.app.commands.copy_once import copy_once
    from tierd.app.commands.deep_check import DeepCheckRound
    from tierd.app.commands.group_positions import GroupPosition, GroupPositions, group_positions
    from tierd.app.commands.metadata_commands import export_metadata, follow_segments, import_metadata
    from tierd.app.commands.offset_commands import explain_offset, found_offset, list_offsets
    from tierd.app.commands.quarantine_commands import hold_endpoint, release_endpoint
    from tierd.app.commands.rebuild_metadata import rebuild_metadata
    from tierd.app.commands.removal_verbs import delete_partition, expire, require_confirmed, undelete
    from tierd.app.commands.repair_tier import RepairRequest, repair_tier
    from tierd.app.commands.rewrap_keys import rewrap_keys
    from tierd.app.commands.tier_inventory import recorded_inventory, tier_inventory
    from tierd.app.daemon.tier_server import ServeRequest
    from tierd.app.engine.deployment import Deployment
    from tierd.app.engine.host_metadata import HostMetadata
    from tierd.app.engine.row_reader import Located, row_reader
    from tierd.app.engine.tier_reader import TierReader, tier_reader
    from tierd.app.engine.tiered_log_reader import HostLogs
    from tierd.app.restore.drill_run import DrillProgress, DrillRequest, DrillResult, drill
    from tierd.app.restore.group_restore_job import GroupRestoreJob, GroupRestoreRequest, group_restore_job
    from tierd.app.restore.log_dir_plan import LogDirPlan, LogDirPlanRequest
    from tierd.app.restore.log_dir_restore import LogDirOutcome, LogDirRestoreRequest, log_dir_restore
    from tierd.app.restore.past_drills import past_drills
    from tierd.app.restore.restore_source import SourceRequest
    from tierd.app.restore.retention_holds import LiftedRetention, RetentionHolds, lift_retention
    from tierd.app.restore.source_reader import source_reader
    from tierd.app.restore.standby_verify import StandbyVerifyRequest, verify_standbys
    from tierd.app.restore.store_restore import (
        PlannedStore,
        StoreKind,
        StoreOutcome,
        StoreRestoreRequest,
        store_restore,
    )
    from tierd.app.restore.topic_restore_job import (
        NewTopicOptions,
        TopicRestoreJob,
        TopicRestoreRequest,
        topic_restore_job,
    )
    from tierd.app.run import run_daemon, run_in_loop, serve_tier, tune_memory
    from tierd.app.services.broker_cost import broker_cost
    from tierd.app.spark.build_pipeline import require_spark
    from tierd.app.spark.compaction_verbs import compact, plan_compaction
    from tierd.app.spark.erasure_verbs import attest_erasure, cancel_erasure, file_erasure, step_erasures
    from tierd.app.spark.filed_erasures import list_erasures, read_erasure
    from tierd.app.spark.past_runs import past_runs
else:
    __getattr__ = exports_on_demand(__name__)
