"""Mending a damaged partition directory, and cutting one off, so that nothing that was there is lost."""

from tierd.log.repair.log_repair_plan import CutTail, LowerCheckpoint, MoveAside, RepairPlan, Step, WriteAnew
from tierd.log.repair.partition_repair import LogRepairResult, repair_partition, truncate_partition

__all__ = [
    "CutTail",
    "LogRepairResult",
    "LowerCheckpoint",
    "MoveAside",
    "RepairPlan",
    "Step",
    "WriteAnew",
    "repair_partition",
    "truncate_partition",
]
