"""LedReplicators: the replicators of all partitions that this node leads, and what is announced of them.

::

    lead ──► PartitionReplicator, announced to its standbys ──► resign: another node leads
                      │ another leader epoch: announced           └► delete: the topic is gone
    run ── once a second: in-sync replicas that lag too long
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import count
from typing import Final
from uuid import UUID

from tierd.clock import Clock
from tierd.model import PartitionKey, TopicIdPartition, TopicPartition
from tierd.replication.leader.assignments import LeaderAssignments
from tierd.replication.leader.logs.leader_log import LeaderLog
from tierd.replication.leader.replicas.partition_replicator import PartitionReplicator
from tierd.replication.leader.replicas.replica_session import PushSessions
from tierd.replication.leader.replicas.replicator_settings import ReplicatorHooks, ReplicatorSettings
from tierd.replication.leader.replicas.replicator_status import ReplicatorStatus
from tierd.replication.model.messages import AssignedPartition
from tierd.replication.model.push_session import PeerNode, PushSessionEndReason

_TICK_S: Final = 1.0
_VERSION_BITS: Final = 20  # a million logs and cuts for each millisecond between the starts of two processes


@dataclass(frozen=True, slots=True)
class ReplicatedPartition:
    """A led partition: its replicator, its standbys, and the settings of the topic that their copies follow."""

    replicator: PartitionReplicator
    nodes: tuple[PeerNode, ...]
    config: tuple[tuple[str, str], ...]


class LedReplicators:
    """Led partitions by topic id and number. For one event loop; ``run`` is its task.

    Attributes:
        changes: number of partitions, and of changes of their standbys, that began or ended.
    """

    def __init__(
        self,
        push: PushSessions,
        assignments: LeaderAssignments,
        settings: ReplicatorSettings,
        *,
        process_epoch: int,
        clock: Clock,
    ) -> None:
        """Begin without a partition.

        Args:
            push: the push manager.
            assignments: what the standbys are told.
            settings: of every replicator.
            process_epoch: of this process, in ms; the versions of its logs are above those of all earlier processes.
            clock: for the ticks, and the time of the replicators.
        """
        self._push = push
        self._assignments = assignments
        self._settings = settings
        self._clock = clock
        self._next_log_version = count((process_epoch << _VERSION_BITS) + 1).__next__
        self._led: dict[PartitionKey, ReplicatedPartition] = {}
        self._by_name: dict[TopicPartition, TopicIdPartition] = {}
        self._lagging: dict[PartitionKey, None] = {}
        self.changes = 0

    def find(self, topic_id: UUID, partition: int) -> PartitionReplicator | None:
        """Return the replicator of a partition; None if this node does not lead it."""
        led = self._led.get((topic_id, partition))
        return None if led is None else led.replicator

    def replicators(self) -> tuple[PartitionReplicator, ...]:
        """Return all replicators."""
        return tuple(led.replicator for led in self._led.values())

    def statuses(self) -> tuple[ReplicatorStatus, ...]:
        """Return the state of all replicas."""
        return tuple(status for led in self._led.values() for status in led.replicator.statuses())

    # ---------------------------------------------------------------- orders

    def lead(
        self,
        log: LeaderLog,
        nodes: Collection[PeerNode],
        *,
        config: tuple[tuple[str, str], ...] = (),
        is_internal_topic: bool = False,
        raise_high_watermark: Callable[[int], None] | None = None,
    ) -> PartitionReplicator:
        """Lead a partition and send it to ``nodes``. A second call with the same log changes nodes and settings only.

        With another log of the same partition, as after a move of the log, the sessions begin anew. A topic of the same
        name with another id ends the sessions of the older one with ``PARTITION_DELETED``. The standbys keep the copies
        of the older one until ``delete`` says that it was deleted.

        Args:
            log: of the partition.
            nodes: the standbys.
            config: settings of the topic that the copies follow.
            is_internal_topic: of Kafka's own topics.
            raise_high_watermark: sets the high watermark of an owned log; None in tail mode.
        """
        key = _key(log.partition)
        self._end_other_incarnation(log.partition)
        led = self._led.get(key)
        if led is not None and led.replicator.log is not log:
            led.replicator.close(PushSessionEndReason.LEADER_LOG_TRUNCATED)
            led = None
        if led is None:
            settings = replace(self._settings, is_internal_topic=is_internal_topic)
            hooks = ReplicatorHooks(
                raise_high_watermark=raise_high_watermark,
                on_lagging=self._note_lagging,
                on_leader_epoch=self._announce_epoch,
                next_log_version=self._next_log_version,
            )
            replicator = PartitionReplicator(log, self._push, settings, hooks, now_s=self._clock.monotonic_s)
        else:
            replicator = led.replicator
        self._led[key] = ReplicatedPartition(replicator, tuple(nodes), config)
        self.changes += 1
        replicator.assign(nodes)
        replicator.check_leader_epoch()
        self._announce(key)
        return replicator

    def resign(self, partition: TopicIdPartition) -> None:
        """Lead a partition no more: another node does, and the standbys keep their copies."""
        led = self._take_out(partition, PushSessionEndReason.LEADER_RESIGNED)
        if led is not None:
            self._assignments.withdraw(partition.topic_id, partition.partition)

    def delete(self, partition: TopicIdPartition) -> None:
        """Tell the standbys that the topic was deleted: they delete their copies."""
        led = self._take_out(partition, PushSessionEndReason.PARTITION_DELETED)
        nodes = () if led is None else led.nodes
        self._assignments.delete(partition.topic_id, partition.partition, [node.node_id for node in nodes])

    def doubt_leadership(self, partition: TopicIdPartition, refused_epoch: int) -> None:
        """Lead a partition no further until ``confirm_leadership`` or a newer epoch: ``on_leadership_doubted`` fits."""
        if (replicator := self.find(partition.topic_id, partition.partition)) is not None:
            replicator.doubt_leadership(refused_epoch)

    def confirm_leadership(self, partition: TopicIdPartition) -> None:
        """Take note that the control plane has confirmed the leadership, and look at the log's leader epoch."""
        if (replicator := self.find(partition.topic_id, partition.partition)) is not None:
            replicator.check_leader_epoch()
            replicator.confirm_leadership()

    def end_sessions(self, reason: PushSessionEndReason) -> None:
        """End all sessions, for example with ``PUSH_DISABLED``."""
        for led in self._led.values():
            led.replicator.end_sessions(reason)

    def close(self) -> None:
        """Resign everything, for the end of the process; nothing is announced."""
        for led in list(self._led.values()):
            self._take_out(led.replicator.partition, PushSessionEndReason.BROKER_SHUTDOWN)

    # ---------------------------------------------------------------- time

    async def run(self) -> None:
        """Look for in-sync replicas that lag for too long, until cancelled. Partitions without lag cost nothing."""
        while True:
            await self._clock.sleep(_TICK_S)
            self.advance()

    def advance(self) -> None:
        """Drop in-sync replicas that lag for too long."""
        for key in list(self._lagging):
            led = self._led.get(key)
            if led is None or not led.replicator.advance():
                self._lagging.pop(key, None)

    # ---------------------------------------------------------------- parts

    def _end_other_incarnation(self, partition: TopicIdPartition) -> None:
        known = self._by_name.get(partition.topic_partition)
        if known is not None and known.topic_id != partition.topic_id:
            self._take_out(known, PushSessionEndReason.PARTITION_DELETED)
            self._assignments.withdraw(known.topic_id, known.partition)
        self._by_name[partition.topic_partition] = partition

    def _take_out(self, partition: TopicIdPartition, reason: PushSessionEndReason) -> ReplicatedPartition | None:
        led = self._led.pop(_key(partition), None)
        if led is not None:
            self.changes += 1
            del self._by_name[partition.topic_partition]
            led.replicator.close(reason)
        return led

    def _note_lagging(self, partition: TopicIdPartition) -> None:
        self._lagging[_key(partition)] = None

    def _announce_epoch(self, partition: TopicIdPartition, _epoch: int) -> None:
        if _key(partition) in self._led:
            self._announce(_key(partition))

    def _announce(self, key: PartitionKey) -> None:
        led = self._led[key]
        partition = led.replicator.partition
        assigned = AssignedPartition(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            leader_epoch=led.replicator.leader_epoch,
            config=led.config,
        )
        self._assignments.assign(assigned, [node.node_id for node in led.nodes])


def _key(partition: TopicIdPartition) -> PartitionKey:
    return partition.topic_id, partition.partition
