"""Plan of a run, decided from metadata alone: its segments, groups and rules. Values only."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.pipeline.planning.audit_sample import audit_works
    from tierd.pipeline.planning.chain import Chain
    from tierd.pipeline.planning.partition_planning import plan_partition
    from tierd.pipeline.planning.proposal import (
        Candidate,
        CleaningPolicy,
        Proposal,
        RunBudget,
        Skipped,
        TierEvidence,
        by_urgency,
    )
    from tierd.pipeline.planning.work_order import ChannelJson, Output, PartitionWork, WorkKind, WorkOrder
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "Candidate",
    "Chain",
    "ChannelJson",
    "CleaningPolicy",
    "Output",
    "PartitionWork",
    "Proposal",
    "RunBudget",
    "Skipped",
    "TierEvidence",
    "WorkKind",
    "WorkOrder",
    "audit_works",
    "by_urgency",
    "plan_partition",
]
