"""ReplicaSet: the replicas of a led partition, those that are in sync, and the high watermark of an owned log. Pure.

There is no controller of push replicas. A standby counts as in sync from the fetch that shows that it has everything
below the high watermark and below the start of the leadership, until it lags for too long, is throttled or removed.
"""

from collections.abc import Iterable, Iterator

from tierd.replication.leader.replica_progress import ReplicaProgress
from tierd.replication.leader.replicator_settings import PartitionLeadership, ReplicatorSettings
from tierd.replication.model.push_session import PeerNode


class ReplicaSet:
    """Replicas by node id."""

    def __init__(self, settings: ReplicatorSettings, leadership: PartitionLeadership) -> None:
        """Begin without a replica; ``leadership`` is changed by the replicator."""
        self._settings = settings
        self._leadership = leadership
        self._by_id: dict[int, ReplicaProgress] = {}
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

    def replace(self, nodes: Iterable[PeerNode]) -> None:
        """Keep the replicas of ``nodes`` and no others. A session keeps the address at which it began."""
        before, self._by_id = self._by_id, {}
        for node in nodes:
            progress = before.get(node.node_id) or ReplicaProgress(node)
            progress.node = node
            self._by_id[node.node_id] = progress
        self.list_pushed()

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
        return any(progress.log_end_offset < log_end for progress in self._awaited(now_s))

    def high_watermark(self, log_end: int, now_s: float) -> int | None:
        """Return the smallest log end of leader and replicas that count; None when the watermark has to stand still."""
        if 1 + len(self.in_sync) < self._settings.min_in_sync_replicas or not self._leadership.is_exercised:
            return None
        return min((log_end, *(progress.log_end_offset for progress in self._awaited(now_s))))

    def _awaited(self, now_s: float) -> Iterator[ReplicaProgress]:
        """Yield the replicas in sync, and those that kept up lately and may join.

        Without the latter, the watermark of a busy log would stay ahead of a standby that keeps up, and the standby
        could never join (Kafka: Partition.maybeIncrementLeaderHW).
        """
        since_s = now_s - self._settings.replica_lag_time_max_s
        for progress in self._by_id.values():
            may_join = progress.is_known and not progress.is_throttled and progress.caught_up_s >= since_s
            if progress.is_in_sync or may_join:
                yield progress
