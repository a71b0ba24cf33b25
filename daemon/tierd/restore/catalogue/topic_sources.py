"""Sources of what the catalogue says of topics: the brokers, or where no connection is configured, the log dirs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from tierd.clock import Clock
from tierd.control import TopicConfig, TopicKnowledge, TopicLeaders
from tierd.model import TopicIdPartition
from tierd.restore.catalogue.catalogue_objects import EFFECTIVE_SETTINGS, CataloguedTopic
from tierd.restore.catalogue.local_partitions import OFFSETS_TOPIC, LocalPartition

if TYPE_CHECKING:  # at run time only where a connection to Kafka is configured
    from tierd.control import ClusterTopics

MAX_VERSIONS: Final = 64
"""Versions of one topic that its object keeps."""

_CONFIGS_EVERY_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSurvey:
    """Topics at one moment.

    Attributes:
        led: leader epochs of the local partitions that this broker leads, those of ``__consumer_offsets`` included.
        topics: topics that this broker catalogues; others are left to another broker, or did not change.
        problem: reason why something is missing; empty if nothing is.
    """

    led: Mapping[TopicIdPartition, int]
    topics: tuple[CataloguedTopic, ...]
    problem: str = ""


class TopicSource(Protocol):
    """Source of leadership and of topics."""

    async def survey(self, found: Mapping[TopicIdPartition, LocalPartition]) -> TopicSurvey:
        """Return what is known of the topics of these local partitions.

        Raises:
            KafkaError: no broker answered.
        """


class LogDirTopics:
    """Topics as the log dirs of this host and the configuration have them: observed partitions only."""

    def __init__(self, *, leads: Callable[[TopicIdPartition], bool], node_id: int, clock: Clock) -> None:
        """Keep the collaborators; ``leads`` tells whether the configuration names a partition as led."""
        self._leads = leads
        self._node_id = node_id
        self._clock = clock

    async def survey(self, found: Mapping[TopicIdPartition, LocalPartition]) -> TopicSurvey:
        """Return the partitions that the configuration names as led, with the latest epochs of their files."""
        led = {
            partition: local.latest_epoch
            for partition, local in found.items()
            if local.latest_epoch is not None and self._leads(partition)
        }
        return TopicSurvey(led=led, topics=observed_topics(led, self._node_id, now_ms=self._clock.now_ms()))


class BrokerTopics:
    """Topics as the brokers have them: leaders at every call, settings of new topics too, of others every 5 minutes."""

    def __init__(self, cluster: "ClusterTopics", *, node_id: int, clock: Clock) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._clock = clock
        self._topics_due_s = 0.0
        self._asked: set[UUID] = set()

    async def survey(self, found: Mapping[TopicIdPartition, LocalPartition]) -> TopicSurvey:
        """Ask the brokers for leaders, and for settings if they are due.

        Raises:
            KafkaError: no broker answered.
        """
        names = {partition.topic_id: partition.topic for partition in found}
        try:
            answers = await self._cluster.leaders(names)
            led = _led(answers, names, found, self._node_id)
            problem = _problem(answers, names)
            if is_due := self._clock.monotonic_s() >= self._topics_due_s:
                self._asked.clear()
            ours = {
                each.topic_id: each
                for each in answers
                if names[each.topic_id] != OFFSETS_TOPIC
                and each.topic_id not in self._asked
                and _leads_first(each, self._node_id)
            }
            if not ours and not is_due:
                return TopicSurvey(led=led, topics=(), problem=problem)
            configs = await self._cluster.changed_configs({names[topic_id] for topic_id in ours})
            self._asked |= ours.keys()
            if is_due:
                self._topics_due_s = self._clock.monotonic_s() + _CONFIGS_EVERY_S
        finally:
            self._cluster.close()
        refused = next((each for each in configs if each.settings is None), None)
        if refused is not None:
            problem = problem or f"the brokers do not tell the settings of {refused.topic}: {refused.error}"
        told = {each.topic: each for each in configs if each.settings is not None}
        now_ms = self._clock.now_ms()
        topics = (
            _catalogued(answer, told[names[topic_id]], now_ms=now_ms)
            for topic_id, answer in ours.items()
            if names[topic_id] in told
        )
        return TopicSurvey(led=led, topics=tuple(topics), problem=problem)


def observed_topics(led: Iterable[TopicIdPartition], node_id: int, *, now_ms: int) -> tuple[CataloguedTopic, ...]:
    """Return the topics that a node which leads these partitions can tell of, by itself."""
    by_topic: dict[tuple[str, UUID], list[int]] = {}
    for partition in led:
        if partition.topic != OFFSETS_TOPIC:
            by_topic.setdefault((partition.topic, partition.topic_id), []).append(partition.partition)
    return tuple(
        CataloguedTopic(
            name=name,
            topic_id=topic_id,
            partition_count=max(numbers) + 1,
            replication_factor=0,
            config={},
            assignment=dict.fromkeys(numbers, (node_id,)),
            observed_ms=now_ms,
            is_from_cluster=False,
        )
        for (name, topic_id), numbers in by_topic.items()
    )


def versions_with(stored: tuple[CataloguedTopic, ...], seen: CataloguedTopic) -> tuple[CataloguedTopic, ...] | None:
    """Return the versions of a topic's object with ``seen`` as the newest; None where it says nothing new.

    A node that asks no broker adds what it observed to what others did, and changes nothing that a broker said.
    """
    newest = stored[-1] if stored else None
    if newest is not None:
        seen = _joined(newest, seen)
        if replace(seen, observed_ms=newest.observed_ms) == newest:
            return None
        seen = replace(seen, observed_ms=max(seen.observed_ms, newest.observed_ms))
    return (*stored, seen)[-MAX_VERSIONS:]


def _joined(newest: CataloguedTopic, seen: CataloguedTopic) -> CataloguedTopic:
    if seen.is_from_cluster:
        return seen
    if newest.is_from_cluster:
        return newest
    return replace(
        seen,
        partition_count=max(newest.partition_count, seen.partition_count),
        assignment={**newest.assignment, **seen.assignment},
    )


def _led(
    answers: Iterable[TopicLeaders],
    names: Mapping[UUID, str],
    found: Mapping[TopicIdPartition, LocalPartition],
    node_id: int,
) -> dict[TopicIdPartition, int]:
    led = {}
    for topic in answers:
        for each in topic.partitions:
            partition = TopicIdPartition(topic.topic_id, names[topic.topic_id], each.partition)
            if each.leader_id == node_id and partition in found:
                led[partition] = each.leader_epoch
    return led


def _leads_first(topic: TopicLeaders, node_id: int) -> bool:
    """Return True if ``node_id`` leads the first partition that has a leader: one broker catalogues a topic."""
    with_leader = [each for each in topic.partitions if each.leader_id >= 0]
    return bool(with_leader) and min(with_leader, key=lambda each: each.partition).leader_id == node_id


def _catalogued(topic: TopicLeaders, told: TopicConfig, *, now_ms: int) -> CataloguedTopic:
    own = told.settings or {}
    in_force = {**told.defaults, **own}
    return CataloguedTopic(
        name=told.topic,
        topic_id=topic.topic_id,
        partition_count=max(each.partition for each in topic.partitions) + 1,
        replication_factor=max(len(each.replica_ids) for each in topic.partitions),
        config=own,
        effective={key: in_force[key] for key in EFFECTIVE_SETTINGS if key in in_force},
        assignment={each.partition: each.replica_ids for each in topic.partitions},
        observed_ms=now_ms,
    )


def _problem(answers: Iterable[TopicLeaders], names: Mapping[UUID, str]) -> str:
    """Return why the brokers tell nothing of a topic; a topic that was just deleted is no problem."""
    for topic in answers:
        if topic.knowledge in (TopicKnowledge.DENIED, TopicKnowledge.FAILED):
            return f"the brokers do not tell the leaders of {names[topic.topic_id]}: {topic.error}"
    return ""
