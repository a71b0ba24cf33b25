"""RetentionHolds: the retention of restored topics, held in Kafka before a restore and lifted afterwards (trap 6)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import make_state_dir
from tierd.app.restore.held_retentions import HeldRetentions
from tierd.app.restore.topic_facts import cluster_topics
from tierd.clock import Clock
from tierd.config import KafkaConnectionSettings
from tierd.control import TopicKnowledge, TopicLeaders
from tierd.errors import ForeignClusterError, KafkaError, RefusedError, TierError
from tierd.model import uuid_to_text
from tierd.restore import (
    HELD_SETTINGS,
    HeldRetention,
    hold_command,
    is_held,
    lift_command,
    lifting_changes,
    settings_before,
)

if TYPE_CHECKING:  # at run time only where a connection to Kafka is configured
    from tierd.control import ClusterTopics

_ANY_BROKER: Final = "HOST:9092"
_NOT_CONFIGURED: Final = "leadership.kafka is not configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHold:
    """Hold of one topic's retention that a restore needs.

    Attributes:
        before: settings of the topic before the hold; None where they are not known.
        problem: reason why tierd cannot hold it; empty if it can.
        bootstrap: brokers for the commands.
    """

    topic: str
    topic_id: UUID
    before: Mapping[str, str | None] | None
    problem: str
    bootstrap: str

    @property
    def hold_command(self) -> str:
        """Return the command with which a person holds the retention."""
        return hold_command(self.topic, self.bootstrap)

    @property
    def lift_command(self) -> str:
        """Return the command with which a person lifts the hold."""
        return lift_command(self.topic, self.before, self.bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedRetention:
    """Outcome for one topic whose hold was to be lifted.

    Attributes:
        changes: settings that were changed, or are to be; None sets the default.
        note: reason why less than the whole hold is lifted; empty if there is none.
        problem: error because of which the topic is held still; None if there is none.
    """

    held: HeldRetention
    changes: Mapping[str, str | None]
    note: str = ""
    problem: TierError | None = None


class RetentionHolds:
    """Holds that one restore needs.

    Attributes:
        topics: in order of their names.
    """

    def __init__(
        self,
        deployment: Deployment,
        topics: Sequence[TopicHold],
        *,
        cluster_id: str | None,
        clock: Clock,
    ) -> None:
        self.topics = tuple(topics)
        self._deployment = deployment
        self._cluster_id = cluster_id
        self._clock = clock

    @classmethod
    async def plan(
        cls,
        deployment: Deployment,
        topics: Mapping[str, UUID],
        known: Mapping[str, Mapping[str, str]],
        *,
        cluster_id: str | None,
        clock: Clock,
    ) -> "RetentionHolds":
        """Ask the brokers whether they let tierd see the topics; nothing is changed.

        Args:
            deployment: the configuration, whose ``leadership.kafka`` is the connection.
            topics: ids of the topics to hold, by name.
            known: settings of topics that the catalogue has, by name.
            cluster_id: of the cluster that gets the restored partitions; None where it is not known.
            clock: time.
        """
        kafka = deployment.kafka
        answers, problem, bootstrap = await _asked(kafka, cluster_id, topics)
        holds = [
            TopicHold(
                topic=topic,
                topic_id=topic_id,
                before=_before(answers.get(topic), known.get(topic)),
                problem=problem or _problem(answers.get(topic)),
                bootstrap=bootstrap,
            )
            for topic, topic_id in sorted(topics.items())
        ]
        return cls(deployment, holds, cluster_id=cluster_id, clock=clock)

    async def hold(self) -> None:
        """Hold the retention of every topic that tierd can hold. The settings before are durable before a change.

        Raises:
            KafkaError: no broker answered.
            RefusedError: the brokers refuse the change, or do not know the topic any more.
            StateDirError: the settings before cannot be written.
        """
        wanted = [each for each in self.topics if not each.problem]
        kafka = self._deployment.kafka
        if not wanted or kafka is None or self._cluster_id is None:
            return
        with cluster_topics(kafka, self._cluster_id) as cluster:
            answers = await _answers(cluster, {each.topic: each.topic_id for each in wanted})
            for each in wanted:
                answer = answers[each.topic]
                if isinstance(answer, str):
                    raise RefusedError(
                        f"the retention of {each.topic} cannot be held: {answer}", remedy=f"run {each.hold_command}"
                    )
                if not is_held(answer):
                    await self._hold(cluster, each, answer)

    async def _hold(self, cluster: "ClusterTopics", hold: TopicHold, own: Mapping[str, str]) -> None:
        assert self._cluster_id is not None, "a cluster was asked"
        state_dir = self._deployment.state_dir
        held = HeldRetention(
            cluster_id=self._cluster_id,
            topic=hold.topic,
            topic_id=hold.topic_id,
            before={},
            held_ms=self._clock.now_ms(),
        )

        def keep() -> None:
            make_state_dir(state_dir)
            records = HeldRetentions(state_dir)
            records.keep(replace(held, before=settings_before(own, records.find(held))))

        await asyncio.to_thread(keep)
        await _change(cluster, hold.topic, HELD_SETTINGS, remedy=f"run {hold.hold_command}, then the restore again")


async def lift_retention(deployment: Deployment, topics: Collection[str], *, is_plan: bool) -> list[LiftedRetention]:
    """Lift the holds of these topics, or of all, or tell what would be done.

    A hold that cannot be lifted does not keep the others from being lifted. A setting that was changed since the hold
    stays as it is.

    Raises:
        RefusedError: tierd does not hold the retention of a topic.
        StateDirError: the records cannot be read.
    """
    records = HeldRetentions(deployment.state_dir)
    held = await asyncio.to_thread(records.read)
    if unknown := sorted(set(topics) - {each.topic for each in held}):
        raise RefusedError(
            f"tierd does not hold the retention of {', '.join(unknown)}",
            remedy="tierd restore release-retention --dry-run lists the topics that it holds",
        )
    lift = _Lift(deployment.kafka, records, is_plan=is_plan)
    return [await lift.one(each) for each in held if not topics or each.topic in topics]


class _Lift:
    def __init__(self, kafka: KafkaConnectionSettings | None, records: HeldRetentions, *, is_plan: bool) -> None:
        self._kafka = kafka
        self._records = records
        self._is_plan = is_plan

    async def one(self, held: HeldRetention) -> LiftedRetention:
        kafka = self._kafka
        by_hand = f"run {lift_command(held.topic, held.before, _ANY_BROKER)}"
        if kafka is None:
            problem = RefusedError(_NOT_CONFIGURED, remedy=f"{by_hand}, or configure it and run this command again")
            return LiftedRetention(held=held, changes={}, problem=problem)
        try:
            with cluster_topics(kafka, held.cluster_id) as cluster:
                return await self._lift(cluster, held, by_hand)
        except TierError as error:
            return LiftedRetention(held=held, changes={}, problem=error)

    async def _lift(self, cluster: "ClusterTopics", held: HeldRetention, by_hand: str) -> LiftedRetention:
        (leaders,) = await cluster.leaders([held.topic_id])
        if leaders.knowledge is TopicKnowledge.UNKNOWN:
            raise RefusedError(
                f"the cluster has no topic {held.topic} of id {uuid_to_text(held.topic_id)}",
                remedy=f"if the topic was deleted, remove {self._records.file_of(held)}",
            )
        own = (await _answers(cluster, {held.topic: held.topic_id}))[held.topic]
        if isinstance(own, str):
            raise RefusedError(f"the settings of {held.topic} are not known: {own}", remedy=by_hand)
        changes = lifting_changes(held.before, own)
        changed = sorted(key for key, value in HELD_SETTINGS.items() if own.get(key) != value)
        note = f"{', '.join(changed)} was changed since the hold, and stays" if changed else ""
        if changes and not self._is_plan:
            await _change(cluster, held.topic, changes, remedy=by_hand)
        await self._forget(held)
        return LiftedRetention(held=held, changes=changes, note=note)

    async def _forget(self, held: HeldRetention) -> None:
        if not self._is_plan:
            await asyncio.to_thread(self._records.forget, held)


ConfigsAnswer = Mapping[str, str] | str
"""Own settings of a topic, or the reason why they are not known."""


async def _asked(
    kafka: KafkaConnectionSettings | None, cluster_id: str | None, topics: Mapping[str, UUID]
) -> tuple[Mapping[str, ConfigsAnswer], str, str]:
    """Return the answers by topic, why there are none, and the brokers for the commands of a person."""
    if kafka is None:
        return {}, _NOT_CONFIGURED, _ANY_BROKER
    if cluster_id is None:
        return {}, "the log dir has no meta.properties that names its cluster", _ANY_BROKER
    bootstrap = ",".join(kafka.bootstrap_servers)
    try:
        with cluster_topics(kafka, cluster_id) as cluster:
            return await _answers(cluster, topics), "", bootstrap
    except ForeignClusterError as error:
        return {}, str(error), _ANY_BROKER
    except KafkaError as error:
        return {}, str(error), bootstrap


async def _answers(cluster: "ClusterTopics", topics: Mapping[str, UUID]) -> dict[str, ConfigsAnswer]:
    """Return the own settings of each topic that the cluster has under this id.

    Raises:
        KafkaError: no broker answered.
    """
    leaders = {each.topic_id: each for each in await cluster.leaders(topics.values())}
    answers: dict[str, ConfigsAnswer] = {
        topic: _not_described(leaders.get(topic_id), topic_id) for topic, topic_id in topics.items()
    }
    described = [topic for topic, answer in answers.items() if not answer]
    for config in await cluster.changed_configs(described) if described else ():
        answers[config.topic] = config.error or "not told" if config.settings is None else config.settings
    return answers


def _not_described(leaders: TopicLeaders | None, topic_id: UUID) -> str:
    if leaders is None or leaders.knowledge is TopicKnowledge.UNKNOWN:
        return f"the cluster has no topic of id {uuid_to_text(topic_id)}"
    return "" if leaders.knowledge is TopicKnowledge.KNOWN else leaders.error


async def _change(cluster: "ClusterTopics", topic: str, changes: Mapping[str, str | None], *, remedy: str) -> None:
    outcome = await cluster.change_config(topic, changes)
    if outcome.error:
        words = f"{outcome.error}: {outcome.message}" if outcome.message else outcome.error
        raise RefusedError(f"the brokers do not change the settings of {topic}: {words}", remedy=remedy)


def _before(answer: ConfigsAnswer | None, known: Mapping[str, str] | None) -> Mapping[str, str | None] | None:
    settings = known if answer is None or isinstance(answer, str) else answer
    return None if settings is None else {key: settings.get(key) for key in HELD_SETTINGS}


def _problem(answer: ConfigsAnswer | None) -> str:
    return answer if isinstance(answer, str) else ""
