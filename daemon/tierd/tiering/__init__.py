"""What is done with a partition between its two tiers: hold, copy, sweep, read, verify, explain.

Decisions are plain functions over values; the tasks that act on them are run by a supervisor from above.
"""

from tierd.tiering.broker_state import BrokerCheckpoints, BrokerOffsets
from tierd.tiering.committed import committed_batches, data_batches
from tierd.tiering.copy_state import CopyPhase, CopyState
from tierd.tiering.copy_task import CopyTask
from tierd.tiering.explain import Explanation, Place, explain
from tierd.tiering.fetch_task import FetchResult, FetchTask
from tierd.tiering.findings import Finding, Severity
from tierd.tiering.held_segment import HeldSegment, HoldKind
from tierd.tiering.hold import HoldStatistics, LogDirHold, SegmentHold
from tierd.tiering.lag import CopyLag
from tierd.tiering.manager import CopyOutcome, RemoteLogManager
from tierd.tiering.plan import CopyCandidate, copy_candidates, highest_copied
from tierd.tiering.recorder import SilentRecorder, TieringRecorder
from tierd.tiering.replicas import LogDirState
from tierd.tiering.status import PartitionState, PartitionStatus
from tierd.tiering.supervision import PartitionTask, PassiveSupervisor, Supervisor, TaskHealth
from tierd.tiering.tiered_log import Isolation, Tier, TieredLog
from tierd.tiering.verify import Verification

__all__ = [
    "BrokerCheckpoints",
    "BrokerOffsets",
    "CopyCandidate",
    "CopyLag",
    "CopyOutcome",
    "CopyPhase",
    "CopyState",
    "CopyTask",
    "Explanation",
    "FetchResult",
    "FetchTask",
    "Finding",
    "HeldSegment",
    "HoldKind",
    "HoldStatistics",
    "Isolation",
    "LogDirHold",
    "LogDirState",
    "PartitionState",
    "PartitionStatus",
    "PartitionTask",
    "PassiveSupervisor",
    "Place",
    "RemoteLogManager",
    "SegmentHold",
    "Severity",
    "SilentRecorder",
    "Supervisor",
    "TaskHealth",
    "Tier",
    "TieredLog",
    "TieringRecorder",
    "Verification",
    "committed_batches",
    "copy_candidates",
    "data_batches",
    "explain",
    "highest_copied",
]
