"""ReplicaSet: the replicas of a led partition, those that are in sync, and the high watermark of an owned log. Pure.

There is no controller of push replicas. A standby counts as in sync from the fetch that shows that it has everything
below the high watermark and below the start of the leadership, until it lags for too long, is throttled or removed.

**The begin of a leadership** (F1, F2). The set of in-sync replicas is not stored. A leader that has just begun, after
an election or as another process in the same epoch, does not know which replicas were in sync before, and a clean
election could take any of those. So the high watermark of an owned log waits for every replica of the first assignment,
and after another change of the leader epoch for every replica that was in sync then (Kafka: Replica.resetReplicaState).
The watermark does not rise above the log end of a replica that has fetched, and stands still for one that has not.
The wait ends when the replica is in sync, or after ``replica_lag_time_max_s``: by then the leader of before would have
taken the replica out. So a restart of the leader takes no replica out sooner than a silence of that length would.
``min_in_sync_replicas`` is for the time after that.
"""

from collections.abc import Iterable, Iterator

from tierd.replication.leader.replicas.replica_progress import NEVER_S, ReplicaProgress
from tierd.replication.leader.replicas.replicator_settings import PartitionLeadership, ReplicatorSettings
from tierd.replication.model.push_session import PeerNode


class ReplicaSet:
    """Replicas by node id."""

    def __init__(self, settings: ReplicatorSettings, leadership: PartitionLeadership) -> None:
        """Begin without a replica; ``leadership`` is changed by the replicator."""
        self._settings = settings
        self._leadership = leadership
        self._by_id: dict[int, ReplicaProgress] = {}
        self._is_assigned = False
        self.pushed: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[ReplicaProgress]:
        """Return an iterator over the replicas."""
        return iter(self._by_id.values())

    @property
    def ids(self) -> tuple[int, ...]:
        """Return the node ids."""
        return tuple(self._by_id)

    @property
    def in_sync(self) -> tuple[int, ...]:
        """Return the node ids of the replicas in sync."""
        return tuple(replica_id for replica_id, progress in self._by_id.items() if progress.is_in_sync)

    def get(self, replica_id: int) -> ReplicaProgress | None:
        """Return a replica; None if the node is not assigned."""
        return self._by_id.get(replica_id)

    def missing_in(self, nodes: Iterable[PeerNode]) -> list[ReplicaProgress]:
        """Return the replicas that ``nodes`` does not have."""
        wanted = {node.node_id for node in nodes}
        return [progress for replica_id, progress in self._by_id.items() if replica_id not in wanted]

    def replace(self, nodes: Iterable[PeerNode], now_s: float) -> None:
        """Keep the replicas of ``nodes`` and no others. A session keeps the address at which it began."""
        awaited_until_s = NEVER_S if self._is_assigned else now_s + self._settings.replica_lag_time_max_s
        before, self._by_id, self._is_assigned = self._by_id, {}, True
        for node in nodes:
            progress = before.get(node.node_id) or ReplicaProgress(node, awaited_until_s=awaited_until_s)
            progress.node = node
            self._by_id[node.node_id] = progress
        self.list_pushed()

    def begin_epoch(self, now_s: float) -> None:
        """Forget the logs of the replicas: they may have followed another leader between the epochs, and truncated."""
        for progress in self._by_id.values():
            if progress.is_in_sync:
                progress.awaited_until_s = now_s + self._settings.replica_lag_time_max_s
            progress.forget_log()

    def list_pushed(self) -> None:
        """List anew which replicas are in push mode."""
        self.pushed = tuple(replica_id for replica_id, progress in self._by_id.items() if progress.is_pushed)

    def join(self, progress: ReplicaProgress, *, high_watermark: int, now_s: float) -> None:
        """Count a replica as in sync if it has what that takes."""
        needed = max(high_watermark, self._leadership.start_offset)
        if not progress.is_in_sync and not progress.is_throttled and progress.log_end_offset >= needed:
            progress.join_in_sync(now_s)

    def take_out_lagging(self, log_end: int, now_s: float) -> list[ReplicaProgress]:
        """Count the replicas that lag for too long as in sync no more, and return them."""
        max_lag_s = self._settings.replica_lag_time_max_s
        found = [
            progress
            for progress in self._by_id.values()
            if progress.is_in_sync and progress.lags_too_long(log_end, max_lag_s=max_lag_s, now_s=now_s)
        ]
        for progress in found:
            progress.is_in_sync = False
        return found

    def has_lagging(self, log_end: int, now_s: float) -> bool:
        """Return True if the watermark waits for a replica that is behind the log end."""
        since_s = self._may_join_since_s(now_s)
        for progress in self._by_id.values():  # a loop: this is asked at each append
            if progress.log_end_offset < log_end and _is_awaited(progress, since_s, now_s):
                return True
        return False

    def high_watermark(self, log_end: int, now_s: float) -> int | None:
        """Return the smallest log end of leader and replicas that count; None when the watermark has to stand still."""
        if not self._leadership.is_exercised:
            return None
        since_s = self._may_join_since_s(now_s)
        in_sync, reached = 1, log_end
        for progress in self._by_id.values():
            in_sync += progress.is_in_sync
            if progress.log_end_offset < reached and _is_awaited(progress, since_s, now_s):
                reached = progress.log_end_offset
        return reached if in_sync >= self._settings.min_in_sync_replicas else None

    def _may_join_since_s(self, now_s: float) -> float:
        """Return the time since which a replica that may join has to have kept up."""
        return now_s - self._settings.replica_lag_time_max_s


def _is_awaited(progress: ReplicaProgress, since_s: float, now_s: float) -> bool:
    """Return True for a replica in sync, for one that may have been before the leadership, and for one that may join.

    Without those that kept up since ``since_s`` and may join, the watermark of a busy log would stay ahead of a standby
    that keeps up, and the standby could never join (Kafka: Partition.maybeIncrementLeaderHW).
    """
    if progress.is_in_sync or progress.is_throttled:
        return progress.is_in_sync
    return now_s < progress.awaited_until_s or (progress.caught_up_s >= since_s and progress.is_known)
