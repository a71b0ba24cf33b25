"""Composition and supervision: builds every object from the configuration, runs it, and stops it in order."""

from tierd.app.compacting import compact, past_runs, plan_compaction
from tierd.app.erasing import (
    attest_erasure,
    cancel_erasure,
    file_erasure,
    list_erasures,
    read_erasure,
    step_erasures,
)
from tierd.app.loop import run_in_loop
from tierd.app.metadata_commands import export_metadata, follow_segments, import_metadata, rebuild_metadata
from tierd.app.once import copy_once
from tierd.app.online_check import check_online, known_cluster_id
from tierd.app.pipeline import require_spark
from tierd.app.reading import explain_offset, found_offset, list_offsets, tier_reader
from tierd.app.removing import delete_partition, expire, require_confirmed, undelete
from tierd.app.repairing import RepairRequest, repair_tier
from tierd.app.rewrapping import rewrap_keys
from tierd.app.run import run_daemon
from tierd.app.usage import broker_cost

__all__ = [
    "RepairRequest",
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
    "known_cluster_id",
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
