"""Repair and truncation of a partition directory; side files keep every byte that is removed."""

from tierd.log.repair.log_repair_plan import CutTail, LogRepairStep, LowerCheckpoint, MoveAside, RepairPlan, WriteAnew
from tierd.log.repair.partition_repair import LogRepairResult, repair_partition, truncate_partition

__all__ = [
    "CutTail",
    "LogRepairResult",
    "LogRepairStep",
    "LowerCheckpoint",
    "MoveAside",
    "RepairPlan",
    "WriteAnew",
    "repair_partition",
    "truncate_partition",
]
