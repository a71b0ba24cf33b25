"""State of a replica as its leader sees it, for ``tierd status`` and for the gauges of unprotected records."""

from collections.abc import Iterable
from dataclasses import dataclass

from tierd.model import TopicIdPartition
from tierd.replication.leader.replicas.log_end_history import LogEndHistory
from tierd.replication.leader.replicas.replica_progress import NEVER_S, ReplicaProgress
from tierd.replication.leader.replicas.replicator_settings import PartitionLeadership
from tierd.replication.leader.replicas.transition_rules import TransitionObstacle
from tierd.replication.model.replication_state import ReplicationMode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorStatus:
    """One replica of a led partition.

    Attributes:
        session_id: of the present session, or of the last fetch; -1 for none.
        log_end_offset: of the standby; -1 when it is not known.
        lag_bytes: an estimate for records from before the leader began to look.
        lag_s: time since the standby last had everything; 0 while it lacks nothing.
        why_not_pushed: reason for pull mode; empty in push mode.
    """

    partition: TopicIdPartition
    replica_id: int
    mode: ReplicationMode
    session_id: int
    log_end_offset: int
    is_in_sync: bool
    lag_offsets: int
    lag_bytes: int
    lag_s: float
    why_not_pushed: str


@dataclass(frozen=True, slots=True)
class UnprotectedRecords:
    """Cost of a loss of this host now: the records of a partition that no standby has."""

    seconds: float = 0.0
    size_bytes: int = 0


def unprotected(statuses: Iterable[ReplicatorStatus]) -> UnprotectedRecords:
    """Return what the best standby of a partition lacks; zero for a partition that is sent to no standby."""
    best = min(statuses, key=lambda status: (status.lag_offsets, status.lag_s), default=None)
    return UnprotectedRecords() if best is None else UnprotectedRecords(best.lag_s, best.lag_bytes)


@dataclass(frozen=True, slots=True)
class LedLogProgress:
    """The facts about the leader's log that a status compares a replica with."""

    partition: TopicIdPartition
    leadership: PartitionLeadership
    history: LogEndHistory
    log_start_offset: int
    began_s: float

    def status_of(self, progress: ReplicaProgress, now_s: float) -> ReplicatorStatus:
        """Describe a replica. A standby that never had everything lags since the leader began to look."""
        end = self.history.log_end_offset
        known = max(progress.log_end_offset, self.log_start_offset)
        lag = max(end - known, 0)
        since_s = self.began_s if progress.complete_s == NEVER_S else progress.complete_s
        return ReplicatorStatus(
            partition=self.partition,
            replica_id=progress.node.node_id,
            mode=progress.state.mode,
            session_id=progress.state.session_id,
            log_end_offset=progress.log_end_offset,
            is_in_sync=progress.is_in_sync,
            lag_offsets=lag,
            lag_bytes=self.history.bytes_after(known) if lag else 0,
            lag_s=max(now_s - since_s, 0.0) if lag else 0.0,
            why_not_pushed=self._why_not(progress, now_s),
        )

    def _why_not(self, progress: ReplicaProgress, now_s: float) -> str:
        if progress.is_pushed:
            return ""
        if self.leadership.is_doubted:
            return (
                f"node {progress.node.node_id} or another standby knows a newer leader epoch; the leadership source is "
                "asked, and nothing is sent before it answers"
            )
        if progress.state.session_id < 0 and not progress.is_known and progress.obstacle is None:
            return "the standby has not fetched yet: tierd status on its host says why"
        if progress.obstacle is TransitionObstacle.COOLDOWN:
            return f"{_ended(progress)}; next session in {max(progress.cooldown.until_s - now_s, 0.0):.0f} s at least"
        if progress.obstacle is not None:
            return str(progress.obstacle.value)
        return _ended(progress) if progress.end_reason is not None else "the log of the standby is compared"


def _ended(progress: ReplicaProgress) -> str:
    reason = "" if progress.end_reason is None else f" with {progress.end_reason.name}"
    return f"the last session ended{reason}"
