"""StandbyStatus: a standby as the status and the metrics show it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tierd.replication.follower.rules.followed_partition import FetchStage
from tierd.replication.follower.standby_replicas import StandbyReplica
from tierd.replication.model.replication_state import ReplicationMode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One partition of a standby.

    Attributes:
        leader_id: node that is followed; None before the first announcement.
        stage: of pull mode; ``FETCHING`` in a session.
        log_start_offset: -1, as the other offsets, while there is no log.
        lag_records: offsets that the leader has and the copy lacks; None while the leader's end is not known.
        is_online: False while the log dir is offline, or the log could not be made.
        last_error: last failure since the last success; empty without one.
    """

    topic: str
    partition: int
    topic_id: str
    mode: ReplicationMode
    session_id: int
    stage: FetchStage
    leader_id: int | None
    leader_epoch: int
    log_start_offset: int = -1
    log_end_offset: int = -1
    high_watermark: int = -1
    lag_records: int | None = None
    is_online: bool = False
    is_rebuilding: bool = False
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyStatus:
    """A standby: its replicas, its leaders and its counters.

    Attributes:
        leaders: by node id, why the leader does not answer; empty for one that does.
        conflicts: by partition, why another incarnation is not kept; by leader, what cannot be kept at all.
        append_errors: answers to leaders with an error, by code.
        pull_transitions: sessions that ended.
    """

    replicas: tuple[ReplicaStatus, ...] = ()
    leaders: dict[int, str] = field(default_factory=dict)
    conflicts: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    is_disk_full: bool = False
    append_errors: dict[int, int] = field(default_factory=dict)
    appended_bytes: int = 0
    duplicate_appends: int = 0
    fetched_bytes: int = 0
    truncated_records: int = 0
    truncations_below_high_watermark: int = 0
    pull_transitions: int = 0

    @property
    def pushed_partitions(self) -> int:
        """Return the number of partitions in a session."""
        return sum(each.mode is ReplicationMode.PUSH for each in self.replicas)


def statuses(replicas: Iterable[StandbyReplica]) -> tuple[ReplicaStatus, ...]:
    """Return the status of each replica, by topic and number."""
    ordered = sorted(replicas, key=lambda each: (each.partition.topic, each.partition.partition))
    return tuple(map(_status_of, ordered))


def _status_of(replica: StandbyReplica) -> ReplicaStatus:
    followed, log, partition = replica.followed, replica.log, replica.partition
    facts = None if log is None else log.facts
    return ReplicaStatus(
        topic=partition.topic,
        partition=partition.partition,
        topic_id=str(partition.topic_id),
        mode=followed.state.mode,
        session_id=followed.session_id,
        stage=followed.stage,
        leader_id=None if followed.leader is None else followed.leader.node_id,
        leader_epoch=-1 if followed.leader is None else followed.leader.leader_epoch,
        log_start_offset=-1 if facts is None else facts.log_start_offset,
        log_end_offset=-1 if facts is None else facts.log_end_offset,
        high_watermark=-1 if facts is None else facts.high_watermark,
        lag_records=None if facts is None else followed.lag(facts),
        is_online=log is not None and log.is_online,
        is_rebuilding=followed.sync.is_rebuilding and (facts is not None and not facts.is_empty),
        last_error=replica.last_error,
    )
