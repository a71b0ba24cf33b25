"""Repair and truncation of a partition directory; side files keep every byte that is removed."""

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
