"""ClusterTopics: topics as the brokers have them: leaders, replicas, and settings that differ from the defaults."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from tierd.config import KafkaConnectionSettings
from tierd.control.admin_messages import AdminOutcome, change_topic_config
from tierd.control.broker_connections import BrokerConnections
from tierd.control.cluster_metadata import TopicConfig, TopicLeaders
from tierd.control.kafka_messages import describe_changed_topic_configs, metadata

A = TypeVar("A")

_TOPICS_PER_REQUEST: Final = 250


class ClusterTopics:
    """Questions about topics, and changes of settings, over a connection of its own.

    One call at a time; ``close`` ends the connection.
    """

    def __init__(self, settings: KafkaConnectionSettings, *, cluster_id: str) -> None:
        """Keep the settings; no connection is made yet.

        Args:
            settings: how to connect.
            cluster_id: the log dirs'; brokers of another cluster are refused.
        """
        self._connections = BrokerConnections(settings, cluster_id=cluster_id)

    async def leaders(self, topic_ids: Collection[UUID]) -> list[TopicLeaders]:
        """Return what a broker says of the partitions of each topic.

        Raises:
            KafkaError: no broker answered.
        """
        answers: list[TopicLeaders] = []
        for some in _pages(sorted(topic_ids)):
            answers += (await self._connections.call(metadata(some))).topics
        return answers

    async def changed_configs(self, topics: Collection[str]) -> list[TopicConfig]:
        """Return the settings of each topic that differ from the defaults of the brokers.

        Raises:
            KafkaError: no broker answered.
        """
        answers: list[TopicConfig] = []
        for some in _pages(sorted(topics)):
            answers += await self._connections.call(describe_changed_topic_configs(some))
        return answers

    async def change_config(self, topic: str, changes: Mapping[str, str | None]) -> AdminOutcome:
        """Change settings of a topic; None sets the default of the brokers. A repetition changes nothing more.

        Raises:
            KafkaError: no broker answered; the change may have been made.
        """
        return await self._connections.call(change_topic_config(topic, changes))

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        self._connections.close()


def _pages(items: Sequence[A]) -> list[Sequence[A]]:
    return [items[at : at + _TOPICS_PER_REQUEST] for at in range(0, len(items), _TOPICS_PER_REQUEST)]
