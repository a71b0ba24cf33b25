"""What is done with a partition between its two tiers: hold, copy, sweep, read, verify, explain.

Decisions are plain functions over values; the tasks that act on them are run by a supervisor from above.
"""

from tierd.tiering.auditing.explain import Explanation, Place, explain
from tierd.tiering.auditing.findings import Finding, Severity
from tierd.tiering.auditing.verify import Verification
from tierd.tiering.copying.copy_state import CopyPhase, CopyState
from tierd.tiering.copying.copy_task import CopyTask
from tierd.tiering.local.broker_state import BrokerCheckpoints, BrokerOffsets
from tierd.tiering.local.held_segment import HeldSegment, HoldKind
from tierd.tiering.local.hold import HoldStatistics, LogDirHold, SegmentHold
from tierd.tiering.local.lag import CopyLag
from tierd.tiering.manager import CopyOutcome, RemoteLogManager
from tierd.tiering.plan import CopyCandidate, copy_candidates, highest_copied
from tierd.tiering.reading.committed import committed_batches, data_batches
from tierd.tiering.reading.fetch_task import FetchResult, FetchTask
from tierd.tiering.reading.tiered_log import Isolation, Tier, TieredLog
from tierd.tiering.recorder import SilentRecorder, TieringRecorder
from tierd.tiering.replicas import LogDirState
from tierd.tiering.status import PartitionState, PartitionStatus
from tierd.tiering.supervision import PartitionTask, PassiveSupervisor, Supervisor, TaskHealth

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
