"""ClusterLeaders: the leaders of the served partitions, by the brokers' metadata."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from uuid import UUID

import structlog

from tierd.app.endpoint.served_topology import KnownPartition
from tierd.clock import Clock
from tierd.errors import KafkaError
from tierd.model import TopicIdPartition

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.control import ClusterTopics, TopicLeaders

log = structlog.get_logger()

_PARTITIONS_PER_S: Final = 1_000  # of answers, which are decoded on the event loop in a fiftieth of that time
_NONE: Final[Mapping[TopicIdPartition, KnownPartition]] = MappingProxyType({})


class ClusterLeaders:
    """Leaders of the partitions of some topics, asked for at intervals that grow with their number."""

    def __init__(
        self, topics: "ClusterTopics", wanted: Callable[[], Mapping[UUID, str]], *, refresh_s: float, clock: Clock
    ) -> None:
        """Ask nothing yet; ``wanted`` returns the names of the topics by id."""
        self._topics = topics
        self._wanted = wanted
        self._refresh_s = refresh_s
        self._clock = clock
        self._failed = False
        self.leaders = _NONE
        """By partition, as the last answer had them."""

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Ask until cancelled; call ``on_change`` whenever an answer differs from the one before."""
        try:
            while True:
                if await self.refresh():
                    on_change()
                await self._clock.sleep(max(self._refresh_s, len(self.leaders) / _PARTITIONS_PER_S))
        finally:
            self._topics.close()

    async def refresh(self) -> bool:
        """Ask once; return True if the answer differs from the one before. Without an answer nothing changes."""
        wanted = self._wanted()
        if not wanted:
            return False
        try:
            answers = await self._topics.leaders(list(wanted))
        except KafkaError as error:
            if not self._failed:
                log.warning("endpoint_leaders_unknown", problem=str(error), remedy=error.remedy)
            self._failed = True
            return False
        self._failed = False
        found = {each.partition: each for each in _known(answers, wanted)}
        if found == self.leaders:
            return False
        self.leaders = MappingProxyType(found)
        return True


def _known(answers: "Iterable[TopicLeaders]", names: Mapping[UUID, str]) -> Iterable[KnownPartition]:
    for topic in answers:
        for each in topic.partitions:
            partition = TopicIdPartition(topic.topic_id, names[topic.topic_id], each.partition)
            yield KnownPartition(partition, each.leader_epoch, each.leader_id if each.leader_id >= 0 else None)
