"""Composition and supervision: builds every object from the configuration, runs it, and stops it in order."""

from tierd.app.checks.access_policy import access_policy
from tierd.app.checks.check_online import check_online
from tierd.app.commands.copy_once import copy_once
from tierd.app.commands.metadata_commands import export_metadata, follow_segments, import_metadata
from tierd.app.commands.offset_commands import explain_offset, found_offset, list_offsets
from tierd.app.commands.rebuild_metadata import rebuild_metadata
from tierd.app.commands.removal_verbs import delete_partition, expire, require_confirmed, undelete
from tierd.app.commands.repair_tier import RepairRequest, repair_tier
from tierd.app.commands.rewrap_keys import rewrap_keys
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.tier_reader import tier_reader
from tierd.app.run import run_daemon, run_in_loop
from tierd.app.services.usage_keeper import broker_cost
from tierd.app.spark.build_pipeline import require_spark
from tierd.app.spark.compaction_verbs import compact, past_runs, plan_compaction
from tierd.app.spark.erasure_verbs import (
    attest_erasure,
    cancel_erasure,
    file_erasure,
    list_erasures,
    read_erasure,
    step_erasures,
)

__all__ = [
    "Deployment",
    "RepairRequest",
    "access_policy",
    "attest_erasure",
    "broker_cost",
    "cancel_erasure",
    "check_online",
    "compact",
    "copy_once",
    "delete_partition",
    "expire",
    "explain_offset",
    "export_metadata",
    "file_erasure",
    "follow_segments",
    "found_offset",
    "import_metadata",
    "list_erasures",
    "list_offsets",
    "past_runs",
    "plan_compaction",
    "read_erasure",
    "rebuild_metadata",
    "repair_tier",
    "require_confirmed",
    "require_spark",
    "rewrap_keys",
    "run_daemon",
    "run_in_loop",
    "step_erasures",
    "tier_reader",
    "undelete",
]
