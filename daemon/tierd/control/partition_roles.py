"""PartitionRoles: the roles of the observed partitions by the answers of brokers. Pure; no I/O, no clock.

Brokers learn of changes at different times, and any of them may be asked, so answers come out of order. The leader
epoch orders them: an answer older than any epoch seen, in an answer or in the local checkpoint, changes nothing.
A topic is gone only when no answer knows its id for a while and then most brokers say so.

::

    observed ──answer──► LEADER or FOLLOWER at an epoch ──answer with a higher epoch──► LEADER or FOLLOWER
        └──────────────────────┴── unknown for a while, most brokers agree ──► DELETED (final)
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tierd.control.cluster_metadata import PartitionLeader, TopicKnowledge, TopicLeaders
from tierd.control.leadership import Leadership, Role
from tierd.model import TopicIdPartition

UNKNOWN_ANSWERS: Final = 3
"""Answers in a row that must not know a topic before the other brokers are asked."""
DEPARTED_WATCH_S: Final = 600.0
"""Time for which a topic is asked for after a replica went: a broker removes files before others know of a delete."""


@dataclass(slots=True)
class _Observed:
    """One partition, with the newest known epoch and role."""

    partition: TopicIdPartition
    floor: int = -1  # highest leader epoch of any answer and of the local checkpoint
    reported: Leadership | None = None  # invariant: reported.leader_epoch <= floor
    problem: str = ""
    departed_at_s: float | None = None


@dataclass(slots=True)
class _Topic:
    """One topic id, with the time since which answers do not know it."""

    partitions: dict[int, _Observed] = field(default_factory=dict)
    unknown_since_s: float = 0.0
    unknown_answers: int = 0
    confirm_at_s: float = 0.0
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class RoleCounts:
    """Numbers of observed partitions by role."""

    leaders: int
    followers: int
    deleted: int
    unknown: int
    without_leader: int


class PartitionRoles:
    """The state machine above, for every observed partition."""

    def __init__(self, node_id: int, *, deletion_grace_s: float = 30.0) -> None:
        """Observe nothing yet; all brokers are asked about a topic that is unknown for ``deletion_grace_s``."""
        self._node_id = node_id
        self._deletion_grace_s = deletion_grace_s
        self._topics: dict[UUID, _Topic] = {}
        self._due: set[UUID] = set()
        self.stale_answers = 0

    # ---------------------------------------------------------------- what is asked

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> bool:
        """Take note of a replica and return whether its topic should be asked for at once.

        A new replica is asked for at once, and one whose checkpoint has an epoch that no answer has had.
        """
        topic = self._topics.setdefault(partition.topic_id, _Topic())
        observed = topic.partitions.get(partition.partition)
        is_change = observed is None or observed.departed_at_s is not None
        if observed is None or observed.departed_at_s is not None:
            observed = topic.partitions[partition.partition] = _Observed(partition)
            topic.is_deleted = False  # the role of a replica that returns is reported again
        if leader_epoch is not None and leader_epoch > observed.floor:
            observed.floor, is_change = leader_epoch, True
        if is_change:
            self._due.add(partition.topic_id)
        return is_change

    def forget(self, partition: TopicIdPartition, now_s: float) -> None:
        """Note that the replica is gone; its topic is asked for a while longer: perhaps the topic was deleted."""
        topic = self._topics.get(partition.topic_id)
        observed = topic.partitions.get(partition.partition) if topic else None
        if topic is None or observed is None:
            return
        if topic.is_deleted:
            self._drop(partition)
        else:
            observed.departed_at_s = now_s
            self._due.add(partition.topic_id)

    def due(self) -> list[UUID]:
        """Return the topics that should be asked for before the next round, and forget that."""
        due = [topic_id for topic_id in self._due if topic_id in self._topics]
        self._due.clear()
        return due

    def topics(self, now_s: float) -> list[UUID]:
        """Return every topic to ask for; drop the partitions that left long ago."""
        for topic in list(self._topics.values()):
            for observed in list(topic.partitions.values()):
                if observed.departed_at_s is not None and now_s - observed.departed_at_s >= DEPARTED_WATCH_S:
                    self._drop(observed.partition)
        return [topic_id for topic_id, topic in self._topics.items() if not topic.is_deleted]

    def partition_count(self, topic_id: UUID) -> int:
        """Return the number of observed partitions of a topic."""
        topic = self._topics.get(topic_id)
        return len(topic.partitions) if topic else 0

    # ---------------------------------------------------------------- what answers mean

    def apply(self, answers: Iterable[TopicLeaders], now_s: float) -> list[Leadership]:
        """Take one broker's answer and return the roles that began with it."""
        return [event for answer in answers for event in self._applied(answer, now_s)]

    def unconfirmed(self, now_s: float) -> list[UUID]:
        """Return topics unknown for so long that every broker is to be asked, each at most once per grace time."""
        found = []
        for topic_id, topic in self._topics.items():
            since_s = now_s - topic.unknown_since_s
            if topic.is_deleted or topic.unknown_answers < UNKNOWN_ANSWERS or since_s < self._deletion_grace_s:
                continue
            if now_s >= topic.confirm_at_s:
                topic.confirm_at_s = now_s + self._deletion_grace_s
                found.append(topic_id)
        return found

    def confirm(self, topic_id: UUID, answers: Collection[TopicKnowledge], *, electorate: int) -> list[Leadership]:
        """Take the brokers' answers about an unknown topic; the topic is deleted if more than half of all say UNKNOWN.

        Args:
            topic_id: one of ``unconfirmed``.
            answers: one of every broker that answered.
            electorate: how many brokers the cluster has, as far as any of them knows.
        """
        topic = self._topics.get(topic_id)
        if topic is None or topic.is_deleted:
            return []
        if any(answer in {TopicKnowledge.KNOWN, TopicKnowledge.DENIED} for answer in answers):
            topic.unknown_answers = 0
            return []
        unknown = sum(answer is TopicKnowledge.UNKNOWN for answer in answers)
        if 2 * unknown <= electorate:
            return []
        topic.is_deleted = True
        events = [
            self._report(each, max(each.floor, 0), Role.DELETED)
            for each in topic.partitions.values()
            if each.reported is None or each.reported.role is not Role.DELETED
        ]
        for observed in list(topic.partitions.values()):
            if observed.departed_at_s is not None:
                self._drop(observed.partition)
        return events

    def is_current(self, event: Leadership) -> bool:
        """Return True if ``event`` is the newest of an observed replica, or a deletion, which departed ones get."""
        topic = self._topics.get(event.partition.topic_id)
        observed = topic.partitions.get(event.partition.partition) if topic else None
        if event.role is Role.DELETED:
            return True
        return observed is not None and observed.departed_at_s is None and observed.reported == event

    # ---------------------------------------------------------------- what is known

    def counts(self) -> RoleCounts:
        """Return the numbers of observed partitions by role."""
        reported = [observed.reported.role if observed.reported else None for observed in self._observed()]
        return RoleCounts(
            leaders=reported.count(Role.LEADER),
            followers=reported.count(Role.FOLLOWER),
            deleted=reported.count(Role.DELETED),
            unknown=reported.count(None),
            without_leader=sum(observed.problem == _NO_LEADER for observed in self._observed()),
        )

    def problems(self, limit: int) -> dict[str, str]:
        """Return the first ``limit`` partitions whose role may be out of date, each with the reason."""
        found = ((str(each.partition), each.problem) for each in self._observed() if each.problem)
        return dict(pair for pair, _ in zip(found, range(limit), strict=False))

    # ---------------------------------------------------------------- the steps

    def _applied(self, answer: TopicLeaders, now_s: float) -> Iterator[Leadership]:
        topic = self._topics.get(answer.topic_id)
        if topic is None or topic.is_deleted:
            return
        match answer.knowledge:
            case TopicKnowledge.KNOWN:
                topic.unknown_answers = 0
                yield from self._led(topic, answer.partitions)
            case TopicKnowledge.UNKNOWN:
                if topic.unknown_answers == 0:
                    topic.unknown_since_s = now_s
                topic.unknown_answers += 1
                _explain(topic, "the cluster does not know its topic id: deleted, or not created everywhere yet")
            case TopicKnowledge.DENIED:
                topic.unknown_answers = 0
                _explain(topic, "not authorized: grant Describe on the topic")
            case TopicKnowledge.FAILED:
                _explain(topic, f"the broker could not say: {answer.error}")

    def _led(self, topic: _Topic, leaders: Iterable[PartitionLeader]) -> Iterator[Leadership]:
        by_number = {each.partition: each for each in leaders}
        for number, observed in topic.partitions.items():
            leader = by_number.get(number)
            if observed.departed_at_s is not None:
                continue
            if leader is None:
                observed.problem = "the cluster does not have this partition"
            elif (role := self._role(observed, leader)) is not None:
                is_sole_replica = leader.replica_ids == (self._node_id,)
                yield self._report(observed, leader.leader_epoch, role, is_sole_replica=is_sole_replica)

    def _role(self, observed: _Observed, leader: PartitionLeader) -> Role | None:
        """Return the role that begins with this answer, None when none does."""
        if leader.leader_epoch < max(observed.floor, 0):
            self.stale_answers += 1
            observed.problem = f"the answer is of epoch {leader.leader_epoch}, older than {observed.floor}"
            return None
        observed.floor = leader.leader_epoch
        if leader.leader_id < 0:
            observed.problem = _NO_LEADER
            return None
        observed.problem = ""
        reported = observed.reported
        if reported is not None and reported.leader_epoch == leader.leader_epoch and reported.role is not Role.DELETED:
            return None  # an epoch has one leader; a broker that contradicts that is ignored
        return Role.LEADER if leader.leader_id == self._node_id else Role.FOLLOWER

    def _report(
        self, observed: _Observed, leader_epoch: int, role: Role, *, is_sole_replica: bool = False
    ) -> Leadership:
        observed.reported = Leadership(observed.partition, leader_epoch, role, is_sole_replica)
        if role is Role.DELETED:
            observed.problem = "the topic was deleted"
        return observed.reported

    def _observed(self) -> Iterator[_Observed]:
        for topic in self._topics.values():
            for observed in topic.partitions.values():
                if observed.departed_at_s is None:
                    yield observed

    def _drop(self, partition: TopicIdPartition) -> None:
        topic = self._topics[partition.topic_id]
        del topic.partitions[partition.partition]
        if not topic.partitions:
            del self._topics[partition.topic_id]


_NO_LEADER: Final = "no leader at present"


def _explain(topic: _Topic, problem: str) -> None:
    for observed in topic.partitions.values():
        observed.problem = problem
