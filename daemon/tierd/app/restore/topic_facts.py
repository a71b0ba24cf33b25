"""Facts about topics that a plan needs and segments do not say: cleanup policy and retention in Kafka."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from tierd.app.engine.control_plane import control_plane
from tierd.clock import Clock
from tierd.config import KafkaConnectionSettings, LeadershipSettings
from tierd.control import TopicKnowledge
from tierd.errors import KafkaError
from tierd.log import BrokerIdentity
from tierd.model import TopicIdPartition
from tierd.restore import TopicRetention

if TYPE_CHECKING:  # at run time only where a connection to Kafka is configured
    from tierd.control import ClusterTopics

log = structlog.get_logger()

_NO_SETTINGS: Mapping[str, str] = {}
_LONG_MAX = 2**63 - 1  # Kafka's other way to say that nothing is too old


class TopicFacts(NamedTuple):
    """Facts about one topic; None where it is not known."""

    is_compacted: bool | None
    retention: TopicRetention | None


@dataclass(frozen=True, slots=True)
class ControllerEpochs:
    """Leader epochs of partitions in the metadata of the cluster.

    Attributes:
        known: by topic id and number of the partition.
        unknown_topics: topic ids that the cluster does not have.
        problem: reason why none are known; empty if they are.
    """

    known: Mapping[tuple[UUID, int], int] = field(default_factory=dict)
    unknown_topics: frozenset[UUID] = frozenset()
    problem: str = ""

    def of(self, partition: TopicIdPartition) -> int | None:
        """Return the leader epoch of a partition; None where it is not known."""
        return self.known.get((partition.topic_id, partition.partition))


async def controller_epochs(
    kafka: KafkaConnectionSettings | None, cluster_id: str, topic_ids: Collection[UUID]
) -> ControllerEpochs:
    """Return the leader epochs that the brokers have from the controller."""
    if kafka is None:
        return ControllerEpochs(problem="leadership.kafka is not configured")
    try:
        with cluster_topics(kafka, cluster_id) as cluster:
            answers = await cluster.leaders(topic_ids)
    except KafkaError as error:
        return ControllerEpochs(problem=str(error))
    return ControllerEpochs(
        {
            (answer.topic_id, each.partition): each.leader_epoch
            for answer in answers
            for each in answer.partitions
            if each.leader_epoch >= 0
        },
        frozenset(answer.topic_id for answer in answers if answer.knowledge is TopicKnowledge.UNKNOWN),
    )


@contextlib.contextmanager
def cluster_topics(kafka: KafkaConnectionSettings, cluster_id: str) -> Iterator["ClusterTopics"]:
    """Ask the brokers of a cluster about topics over a connection that ends with the block; none is made yet."""
    from tierd.control import ClusterTopics  # noqa: PLC0415 - only where a connection is configured

    cluster = ClusterTopics(kafka, cluster_id=cluster_id)
    try:
        yield cluster
    finally:
        cluster.close()


async def broker_settings(
    leadership: LeadershipSettings, identity: BrokerIdentity, topics: Collection[str], *, clock: Clock
) -> dict[str, Mapping[str, str]]:
    """Return the topics' settings as the brokers have them; empty where no broker answers or none is configured."""
    control = control_plane(leadership, identity, clock=clock, random=lambda: 0.5)
    configs = control.topic_configs
    if configs is None:
        return {}
    for topic in topics:
        configs.get(topic)  # the refresh asks for this topic
    try:
        await configs.refresh()
    except KafkaError as error:
        log.warning("topic_settings_unknown", problem=str(error), remedy=error.remedy)
    finally:
        control.close()
    return {topic: known for topic in topics if (known := configs.get(topic)) is not None}


def topic_facts(
    configured_policy: str, settings: Mapping[str, str] | None, *, retention_ms: int | None, is_cleaned: bool
) -> TopicFacts:
    """Return the facts about a topic.

    Args:
        configured_policy: ``cleanup_policy`` of the configuration; ``from-broker`` says nothing.
        settings: the topic's settings in Kafka; None where they are not known.
        retention_ms: as a person gave it; it wins.
        is_cleaned: a compaction in the tier has cleaned the partition.
    """
    known = _NO_SETTINGS if settings is None else settings
    policy = known.get("cleanup.policy", "") if configured_policy == "from-broker" else configured_policy
    policies = frozenset(policy.replace(" ", "").split(",")) - {""}
    is_compacted = True if is_cleaned else ("compact" in policies if policies else None)
    if policies and "delete" not in policies:
        return TopicFacts(is_compacted, TopicRetention())
    if retention_ms is not None:
        return TopicFacts(is_compacted, TopicRetention(retention_ms, _number(known, "retention.bytes", -1)))
    if "retention.ms" not in known:
        return TopicFacts(is_compacted, None)
    retention = TopicRetention(_number(known, "retention.ms", -1), _number(known, "retention.bytes", -1))
    return TopicFacts(is_compacted, retention)


def _number(settings: Mapping[str, str], key: str, otherwise: int) -> int:
    try:
        value = int(settings[key])
    except (KeyError, ValueError):
        return otherwise
    return otherwise if value == _LONG_MAX else value
