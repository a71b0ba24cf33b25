"""Driver of ``PartitionRoles``: roles of the partitions on broker 1 by the answers of brokers.

::

    replica orders-0 [id=A] [epoch=3]     a directory exists; epoch: the newest in its leader-epoch-checkpoint
    removed orders-0 [id=A]               the directory was removed
    answer orders [id=A] leader=1 epoch=3 [partition=0] [replicas=1,2]     leader=none: no leader at present
    answer orders [id=A] unknown | denied | failed
    unconfirmed                           topics to ask every broker for
    confirm orders [id=A] brokers=3 unknown unknown     answers of the brokers, one word each
    status                                roles and problems
    wait 30s
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from tests.transcripts.transcript import Command
from tests.transcripts.units import parse_duration
from tierd.control import Leadership
from tierd.control.cluster_metadata import PartitionLeader, TopicKnowledge, TopicLeaders
from tierd.control.partition_roles import PartitionRoles
from tierd.model import TopicIdPartition, TopicPartition

NODE_ID = 1


class LeadershipEvents:
    """Broker 1, its replicas, and the answers that it gets."""

    def __init__(self) -> None:
        """Begin without a replica."""
        self._roles = PartitionRoles(NODE_ID)
        self._now_s = 0.0
        self._names: dict[UUID, str] = {}  # of topic ids

    def run(self, command: Command) -> Iterator[str]:
        """Carry out a command, and yield the events of ``PartitionRoles``."""
        match command.name:
            case "wait":
                self._now_s += parse_duration(command.word()) / 1000
            case "replica":
                partition = self._partition(command)
                epoch = command.option("epoch", "")
                if self._roles.observe(partition, int(epoch) if epoch else None):
                    yield f"ask for {self._named(partition.topic_id)} now"
            case "removed":
                self._roles.forget(self._partition(command), self._now_s)
            case "answer":
                yield from self._shown(self._roles.apply([self._answer(command)], self._now_s))
            case "unconfirmed":
                for topic_id in self._roles.unconfirmed(self._now_s):
                    yield f"ask every broker for {self._named(topic_id)}"
            case "confirm":
                topic_id = self._topic_id(command)
                brokers = int(command.option("brokers"))
                answers = [TopicKnowledge(word) for word in command.words()]
                yield from self._shown(self._roles.confirm(topic_id, answers, electorate=brokers))
            case "status":
                yield from self._status()
            case _:
                raise command.unknown()

    def _answer(self, command: Command) -> TopicLeaders:
        topic_id = self._topic_id(command)
        for word in command.words():
            return TopicLeaders(topic_id, TopicKnowledge(word), error="timed out" if word == "failed" else "")
        leader = command.option("leader")
        replicas = command.option("replicas", "1,2,3").split(",")
        found = PartitionLeader(
            int(command.option("partition", "0")),
            -1 if leader == "none" else int(leader),
            int(command.option("epoch")),
            tuple(int(each) for each in replicas),
        )
        return TopicLeaders(topic_id, TopicKnowledge.KNOWN, (found,))

    def _shown(self, events: Iterable[Leadership]) -> Iterator[str]:
        for event in events:
            sole = ", the only replica" if event.is_sole_replica else ""
            where = f"{event.partition} ({self._named(event.partition.topic_id)})"
            yield f"{where}: {event.role.value} at epoch {event.leader_epoch}{sole}"

    def _status(self) -> Iterator[str]:
        counts = self._roles.counts()
        yield (
            f"leaders {counts.leaders}, followers {counts.followers}, deleted {counts.deleted}, "
            f"unknown {counts.unknown}, stale answers {self._roles.stale_answers}"
        )
        for partition, problem in self._roles.problems(10).items():
            yield f"{partition}: {problem}"

    def _partition(self, command: Command) -> TopicIdPartition:
        parsed = TopicPartition.parse(command.word())
        return TopicIdPartition(self._id_of(parsed.topic, command.option("id", "A")), parsed.topic, parsed.partition)

    def _topic_id(self, command: Command) -> UUID:
        return self._id_of(command.word(), command.option("id", "A"))

    def _id_of(self, topic: str, incarnation: str) -> UUID:
        name = f"{topic} {incarnation}"
        known = {each: topic_id for topic_id, each in self._names.items()}
        topic_id = known.get(name, UUID(int=len(known) + 1))
        self._names[topic_id] = name
        return topic_id

    def _named(self, topic_id: UUID) -> str:
        return f"topic id {self._names[topic_id].split()[1]}"
