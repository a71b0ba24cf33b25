"""Drills: restores into a scratch directory, which prove on a schedule that the tier comes back (DESIGN 13)."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.restore.drill.drill_choice import has_something, rotation
    from tierd.restore.drill.drill_command import DrillCommand
    from tierd.restore.drill.drill_history import DrillHistory
    from tierd.restore.drill.drill_scratch import DrillScratch, held_scratch
    from tierd.restore.drill.drilled_partition import DrilledPartition, DrillOutcome, DrillProofs
    from tierd.restore.drill.partition_drill import PartitionDrill, Proof
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "DrillCommand",
    "DrillHistory",
    "DrillOutcome",
    "DrillProofs",
    "DrillScratch",
    "DrilledPartition",
    "PartitionDrill",
    "Proof",
    "has_something",
    "held_scratch",
    "rotation",
]
