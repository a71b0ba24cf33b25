"""StandbyReplicas: the partitions that a standby has, each with its state, its log and its lock."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from tierd.errors import TierError
from tierd.model import PartitionKey, TopicIdPartition, TopicPartition
from tierd.replication.follower.rules.followed_partition import FollowedPartition
from tierd.replication.follower.rules.log_facts import FollowerLog, FollowerLogFacts
from tierd.replication.model.push_error_code import PushErrorCode


@dataclass(slots=True, eq=False)
class StandbyReplica:
    """One partition of a standby.

    Attributes:
        followed: its state.
        log: None while the log is made, or when it could not be made.
        unavailable: answer to the leader while there is no log.
        lock: held while a change of the log is decided and carried out.
        last_error: the last failure, for the status; empty after a success.
        kept: offset from which the records of the log were copied aside, and the log of then; None after a change.
        difference: version of the leader's log, and lowest offset at which this log was said to differ from it.
        is_gone: the replica was deleted or set aside; a task that then gets the lock does nothing.
    """

    followed: FollowedPartition
    log: FollowerLog | None = None
    unavailable: PushErrorCode = PushErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_error: str = ""
    kept: tuple[int, FollowerLogFacts] | None = None
    difference: tuple[int, int] | None = None
    is_gone: bool = False

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition."""
        return self.followed.partition

    @property
    def usable_log(self) -> FollowerLog | None:
        """Return the log if it can be used now."""
        return self.log if self.log is not None and self.log.is_online and not self.is_gone else None

    def is_news(self, version: int, differs_at: int) -> bool:
        """Return True if a difference from the leader's log was not known before, or only higher up; then it is."""
        if self.difference is not None and self.difference[0] == version and self.difference[1] <= differs_at:
            return False
        self.difference = version, differs_at
        return True

    def note(self, error: TierError | str) -> None:
        """Keep an error for the status."""
        self.last_error = error.explained if isinstance(error, TierError) else error


class StandbyReplicas:
    """The replicas of a standby, found by topic id and number, by name, and by leader. For one event loop."""

    def __init__(self) -> None:
        """Begin empty."""
        self._replicas: dict[PartitionKey, StandbyReplica] = {}
        self._by_name: dict[TopicPartition, StandbyReplica] = {}
        self._topic_ids: dict[UUID, int] = {}
        self._wakers: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        """Return the number of replicas."""
        return len(self._replicas)

    def __iter__(self) -> Iterator[StandbyReplica]:
        """Iterate over the replicas as they are now."""
        return iter(list(self._replicas.values()))

    def add(self, replica: StandbyReplica) -> None:
        """Add a replica; there is none of the same partition."""
        partition = replica.partition
        assert partition.topic_partition not in self._by_name
        self._replicas[partition.topic_id, partition.topic_partition.partition] = replica
        self._by_name[partition.topic_partition] = replica
        self._topic_ids[partition.topic_id] = self._topic_ids.get(partition.topic_id, 0) + 1

    def remove(self, replica: StandbyReplica) -> None:
        """Remove a replica; leaders that push to it get an error from now on."""
        partition = replica.partition
        replica.is_gone = True
        del self._replicas[partition.topic_id, partition.topic_partition.partition]
        del self._by_name[partition.topic_partition]
        self._topic_ids[partition.topic_id] -= 1
        if not self._topic_ids[partition.topic_id]:
            del self._topic_ids[partition.topic_id]

    def get(self, topic_id: UUID, partition: int) -> StandbyReplica | None:
        """Return a replica; None without one."""
        return self._replicas.get((topic_id, partition))

    def named(self, partition: TopicPartition) -> StandbyReplica | None:
        """Return the replica of any incarnation of the topic."""
        return self._by_name.get(partition)

    def missing_code(self, topic_id: UUID) -> PushErrorCode:
        """Return the answer about a partition that is not here."""
        is_known = topic_id in self._topic_ids
        return PushErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_known else PushErrorCode.UNKNOWN_TOPIC_ID

    def pulling_from(self, leader_id: int) -> list[StandbyReplica]:
        """Return the replicas in pull mode that follow ``leader_id``."""
        return [
            replica
            for replica in self._replicas.values()
            if not replica.followed.is_pushed
            and replica.followed.leader is not None
            and replica.followed.leader.node_id == leader_id
        ]

    def on_pull(self, leader_id: int, wake: Callable[[], None] | None) -> None:
        """Call ``wake`` when a replica of ``leader_id`` may have something to ask; None ends it."""
        if wake is None:
            self._wakers.pop(leader_id, None)
        else:
            self._wakers[leader_id] = wake

    def wake(self, replica: StandbyReplica) -> None:
        """Tell the fetcher of the replica's leader that the replica may have something to ask."""
        leader = replica.followed.leader
        if leader is not None and not replica.followed.is_pushed and leader.node_id in self._wakers:
            self._wakers[leader.node_id]()
