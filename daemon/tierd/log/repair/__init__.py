"""Mending a damaged partition directory, and cutting one off, so that nothing that was there is lost."""

from tierd.log.repair.mend import Mended, repair_partition, truncate_partition
from tierd.log.repair.plan import CutTail, LowerCheckpoint, MoveAside, RepairPlan, Step, WriteAnew

__all__ = [
    "CutTail",
    "LowerCheckpoint",
    "Mended",
    "MoveAside",
    "RepairPlan",
    "Step",
    "WriteAnew",
    "repair_partition",
    "truncate_partition",
]
