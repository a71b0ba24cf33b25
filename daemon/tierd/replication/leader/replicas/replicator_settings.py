"""Settings of a replicator, its leadership, and what it tells its surroundings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.leader_log import LeaderLog


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorSettings:
    """Settings of one led partition.

    Attributes:
        transition_max_lag_bytes: a standby that lacks more stays in pull.
        replica_lag_time_max_s: a standby that lags for longer is not in sync.
        min_in_sync_replicas: with fewer replicas in sync, the leader among them, the high watermark of an owned log
            stands still.
        is_internal_topic: of Kafka's own topics.
    """

    transition_max_lag_bytes: int = 1 << 20
    replica_lag_time_max_s: float = 30.0
    min_in_sync_replicas: int = 1
    is_internal_topic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorHooks:
    """Calls of a replicator to its surroundings; plain calls that must not raise.

    Attributes:
        raise_high_watermark: sets the high watermark of an owned log; None where a broker does it (tail mode).
        on_lagging: an in-sync replica is behind the log end: ``advance`` has to be called now and then.
        on_leader_epoch: the log has another leader epoch.
        next_log_version: a number above 0 that no log of this node has had before, in no process of the node.
    """

    raise_high_watermark: Callable[[int], None] | None = None
    on_lagging: Callable[[TopicIdPartition], None] = lambda _partition: None
    on_leader_epoch: Callable[[TopicIdPartition, int], None] = lambda _partition, _epoch: None
    next_log_version: Callable[[], int] = field(default_factory=lambda: count(1).__next__)


@dataclass(slots=True)
class PartitionLeadership:
    """The leadership of a partition.

    Attributes:
        epoch: leader epoch.
        start_offset: log end when the leadership began, as far as the leader knows.
        log_version: of the log: another one for each leadership, and each time the log was cut back. Standbys compare
            their logs with it once for each version, because a log may grow again in the same epoch after a cut.
        is_doubted: a standby knows a newer epoch: nothing is led until the control plane has spoken.
        is_moving: the log moves to another directory.
        is_closed: the leadership has ended.
    """

    epoch: int
    start_offset: int
    log_version: int
    is_doubted: bool = False
    is_moving: bool = False
    is_closed: bool = False

    @property
    def is_exercised(self) -> bool:
        """Return True if the node leads the partition."""
        return not (self.is_doubted or self.is_closed)


def present_epoch(log: LeaderLog) -> int:
    """Return the leader epoch of a log; records of a newer leadership count before it is announced."""
    latest = log.lineage.latest
    return log.leader_epoch if latest is None else max(log.leader_epoch, latest.epoch)
