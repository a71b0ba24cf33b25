"""Mending a damaged partition directory, and cutting one off, so that nothing that was there is lost."""

from tierd.log.repair.facts import Artefact, Fault, FaultKind, PartitionFacts, SegmentFacts
from tierd.log.repair.mend import Mended, repair_partition, truncate_partition
from tierd.log.repair.plan import CutTail, LowerCheckpoint, MoveAside, RemainingDamage, RepairPlan, Step, WriteAnew

__all__ = [
    "Artefact",
    "CutTail",
    "Fault",
    "FaultKind",
    "LowerCheckpoint",
    "Mended",
    "MoveAside",
    "PartitionFacts",
    "RemainingDamage",
    "RepairPlan",
    "SegmentFacts",
    "Step",
    "WriteAnew",
    "repair_partition",
    "truncate_partition",
]
