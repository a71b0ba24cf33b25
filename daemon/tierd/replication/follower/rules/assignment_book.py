"""AssignmentBook: the partitions that a standby keeps, by the announcements of all leaders. Pure.

The rules:

- Of all announcements of a topic incarnation, the one with the highest leader epoch names the leader. Two nodes may
  announce one epoch for a moment: a leader that is being replaced sees the new epoch in its log before it hears that
  another node has it. The first one is followed while it announces the partition, and then the other one.
- A copy is deleted only when the node that leads it announces the deletion. A leader that is away, and an announcement
  that lacks a partition, change nothing. A deleted incarnation is never kept again.
- Settings that are empty are not known to the leader, as before the brokers have answered it: those of before stay.
- A topic that was created anew has another id under the same name. The old copy is set aside, unless its own leader
  still announces it: then the new incarnation waits for the end of that, and is shown as a conflict. A leader announces
  it once, so that each later answer of any leader is an occasion.
- A name that Kafka does not have is refused, and shown: it would be a path outside of the log dir, or one that no disk
  takes. So are negative numbers of partitions and leader epochs.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tierd.model import TopicIdPartition, TopicPartition, is_topic_name
from tierd.replication.follower.rules.followed_partition import LeaderClaim
from tierd.replication.model.messages import AssignedPartition, DeletedReplica

MAX_RETIRED: Final = 10_000
"""Deleted topic ids that are remembered; the oldest ones are forgotten first."""


@dataclass(frozen=True, slots=True)
class KeptReplica:
    """Partition that the standby keeps, with the leader that it follows."""

    partition: TopicIdPartition
    leader: LeaderClaim


@dataclass(frozen=True, slots=True)
class KeepReplica:
    """Make a log if there is none, and follow the leader."""

    replica: KeptReplica


@dataclass(frozen=True, slots=True)
class DeleteReplica:
    """Delete the copy: its leader has announced the deletion of the topic."""

    partition: TopicIdPartition


@dataclass(frozen=True, slots=True)
class SetReplicaAside:
    """Keep the files of the copy under another name: another incarnation of the topic takes its place."""

    partition: TopicIdPartition


@dataclass(frozen=True, slots=True)
class ConfigureTopic:
    """Give the logs of a topic other settings."""

    topic: str
    config: tuple[tuple[str, str], ...]


AssignmentStep = KeepReplica | DeleteReplica | SetReplicaAside | ConfigureTopic


class AssignmentBook:
    """Announcements of the leaders, and what the standby keeps because of them."""

    def __init__(self, kept: Iterable[KeptReplica] = (), *, retired: Sequence[UUID] = ()) -> None:
        """Begin with what was kept before, and with the ids of deleted topics, oldest first."""
        self._kept = {each.partition.topic_partition: each for each in kept}
        self._retired = dict.fromkeys(retired)
        self._announced: dict[int, dict[TopicPartition, UUID]] = {}
        for each in self._kept.values():  # as fresh as an answer, until the leader is lost
            names = self._announced.setdefault(each.leader.node_id, {})
            names[each.partition.topic_partition] = each.partition.topic_id
        self._configs: dict[str, tuple[tuple[str, str], ...]] = {}
        self._refused: dict[int, dict[str, str]] = {}  # by leader, and by partition or leader; of the last answer
        self._waiting: dict[int, list[AssignedPartition]] = {}  # by leader: until another node's claim is gone

    @property
    def kept(self) -> tuple[KeptReplica, ...]:
        """Return what the standby keeps."""
        return tuple(self._kept.values())

    @property
    def topics(self) -> frozenset[str]:
        """Return the names of the topics of what the standby keeps."""
        return frozenset(each.partition.topic for each in self._kept.values())

    @property
    def retired(self) -> tuple[UUID, ...]:
        """Return the ids of topics that were deleted, oldest first."""
        return tuple(self._retired)

    @property
    def announcing(self) -> frozenset[int]:
        """Return the leaders whose announcements are fresh."""
        return frozenset(self._announced)

    @property
    def conflicts(self) -> dict[str, str]:
        """Return why announcements are refused, by the partition, or by the leader if it has no possible partition."""
        return {what: why for refused in self._refused.values() for what, why in refused.items()}

    def on_announced(
        self,
        leader_id: int,
        partitions: Sequence[AssignedPartition] | None,
        deleted: Collection[DeletedReplica] = (),
    ) -> list[AssignmentStep]:
        """Take note of an answer of a leader; return what is to be done, in order.

        Args:
            leader_id: node id of the leader.
            partitions: all that it sends to this standby; None for the same as before.
            deleted: partitions whose topic was deleted.
        """
        steps = self._delete(leader_id, deleted)
        if partitions is None:
            return steps + self._assign_waiting()
        self._refused[leader_id], self._waiting[leader_id] = {}, []
        self._announced[leader_id] = {TopicPartition(each.topic, each.partition): each.topic_id for each in partitions}
        for each in partitions:
            steps += self._assign(leader_id, each)
        return steps + self._assign_waiting()

    def on_lost(self, leader_id: int) -> None:
        """Take note that a leader does not answer; what it announced is not fresh any more."""
        self._announced.pop(leader_id, None)
        self._refused.pop(leader_id, None)
        self._waiting.pop(leader_id, None)

    def _delete(self, leader_id: int, deleted: Collection[DeletedReplica]) -> list[AssignmentStep]:
        gone = {(each.topic_id, each.partition) for each in deleted}
        found = [
            kept
            for kept in self._kept.values()
            if kept.leader.node_id == leader_id and (kept.partition.topic_id, kept.partition.partition) in gone
        ]
        for kept in found:
            del self._kept[kept.partition.topic_partition]
            self._retire(kept.partition.topic_id)
        for topic in {kept.partition.topic for kept in found} - self.topics:
            self._configs.pop(topic, None)
        return [DeleteReplica(kept.partition) for kept in found]

    def _retire(self, topic_id: UUID) -> None:
        self._retired[topic_id] = None
        while len(self._retired) > MAX_RETIRED:
            del self._retired[next(iter(self._retired))]

    def _assign_waiting(self) -> list[AssignmentStep]:
        steps: list[AssignmentStep] = []
        for leader_id, waiting in self._waiting.items():
            self._waiting[leader_id] = []
            for each in waiting:
                self._refused[leader_id].pop(str(TopicPartition(each.topic, each.partition)), None)
                steps += self._assign(leader_id, each)
        return steps

    def _assign(self, leader_id: int, assigned: AssignedPartition) -> list[AssignmentStep]:
        name, refused = TopicPartition(assigned.topic, assigned.partition), self._refused[leader_id]
        if not is_topic_name(assigned.topic) or min(assigned.partition, assigned.leader_epoch) < 0:
            refused[f"node {leader_id}"] = (
                f"it announces {assigned.topic!r:.80}, partition {assigned.partition}, leader epoch "
                f"{assigned.leader_epoch}, which Kafka does not have: look at that daemon"
            )
            return []
        if assigned.topic_id in self._retired:
            refused[str(name)] = (
                f"node {leader_id} announces topic id {assigned.topic_id}, whose deletion was announced before; if it "
                "was moved and not deleted, stop this daemon and remove push-standby.json from its state_dir"
            )
            return []
        replica = KeptReplica(
            TopicIdPartition(assigned.topic_id, assigned.topic, assigned.partition),
            LeaderClaim(leader_id, assigned.leader_epoch),
        )
        kept, steps = self._kept.get(name), list[AssignmentStep]()
        if kept is not None and kept.partition.topic_id == assigned.topic_id:
            if kept.leader.leader_epoch > assigned.leader_epoch:
                return []
            is_other = kept.leader.node_id != leader_id
            if is_other and kept.leader.leader_epoch == assigned.leader_epoch and self._is_announced(kept):
                self._waiting[leader_id].append(assigned)
                return []
        elif kept is not None:
            if self._is_announced(kept):
                self._waiting[leader_id].append(assigned)
                refused[str(name)] = (
                    f"node {leader_id} announces topic id {assigned.topic_id}, and node {kept.leader.node_id} still "
                    f"announces {kept.partition.topic_id}: remove the deleted topic's partition from one of the nodes"
                )
                return []
            steps.append(SetReplicaAside(kept.partition))
        steps += self._configure(assigned)
        if kept != replica:
            self._kept[name] = replica
            steps.append(KeepReplica(replica))
        return steps

    def _is_announced(self, kept: KeptReplica) -> bool:
        announced = self._announced.get(kept.leader.node_id, {})
        return announced.get(kept.partition.topic_partition) == kept.partition.topic_id

    def _configure(self, assigned: AssignedPartition) -> list[AssignmentStep]:
        if self._configs.get(assigned.topic) == assigned.config:
            return []
        if not assigned.config and self._is_kept(assigned):
            return []
        self._configs[assigned.topic] = assigned.config
        return [ConfigureTopic(assigned.topic, assigned.config)]

    def _is_kept(self, assigned: AssignedPartition) -> bool:
        """Return True if this partition, or another one of its topic, is kept; the first answer needs no search."""
        kept = self._kept.get(TopicPartition(assigned.topic, assigned.partition))
        if kept is not None and kept.partition.topic_id == assigned.topic_id:
            return True
        return any(each.partition.topic_id == assigned.topic_id for each in self._kept.values())
