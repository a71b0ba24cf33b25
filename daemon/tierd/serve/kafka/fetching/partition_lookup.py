"""PartitionLookup: the partitions that a client names, found in the cluster as it is, if the client may read them."""

from uuid import UUID

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.access import Authorizer
from tierd.serve.kafka.fetching.fetch_demand import FetchKey, PartitionFetch
from tierd.serve.kafka.fetching.fetch_part import FetchPart, is_led_elsewhere
from tierd.serve.kafka.fetching.position_rules import fencing
from tierd.serve.kafka.served.served_cluster import ServedCluster, ServedPartition, ServedPartitions, ServedTopic


class PartitionLookup:
    """Partitions for one client. The cluster is looked at again whenever it has changed."""

    def __init__(self, served: ServedPartitions, authorizer: Authorizer, *, listener: str, principal: str) -> None:
        """Look up what ``principal`` may read on a listener."""
        self._served = served
        self._authorizer = authorizer
        self._listener = listener
        self._principal = principal
        self.cluster: ServedCluster = served.cluster(listener)
        self._topics: dict[str | UUID, ServedTopic | ErrorCode] = {}

    def part(self, key: FetchKey, wanted: PartitionFetch) -> FetchPart:
        """Return a part that is ready to be read, or that has its error."""
        found = self._find(key)
        if isinstance(found, ErrorCode):
            part = FetchPart(key, wanted, None, None)
            part.fail(found)
            return part
        part = FetchPart(key, wanted, found, self._served.log(found.partition))
        self._check(part)
        return part

    def has_changed(self) -> bool:
        """Return True if the cluster is another one than at the last look, and go on with that one."""
        cluster = self._served.cluster(self._listener)
        if cluster is self.cluster:
            return False
        self.cluster = cluster
        self._topics.clear()
        return True

    def check_again(self, part: FetchPart) -> None:
        """Settle a part whose partition is gone, is another one under the same name, or has another leader epoch."""
        if part.is_settled or part.served is None:
            return
        found = self._find(part.key)
        if isinstance(found, ErrorCode):
            part.fail(found)
        elif found.partition != part.served.partition:
            part.fail(ErrorCode.unknown_topic_or_partition)
        else:
            part.served = found
            self._check(part)

    def _check(self, part: FetchPart) -> None:
        """Settle a part whose leader or leader epoch is not what the client takes it for."""
        assert part.served is not None, "a partition that was found"
        error = fencing(part.wanted, part.served.leader_epoch)
        if error is ErrorCode.fenced_leader_epoch:
            part.fail_with_leader(error)
        elif error is not ErrorCode.none:
            part.fail(error)
        elif part.log is None and is_led_elsewhere(part.served, self.cluster):
            part.fail_with_leader(ErrorCode.not_leader_or_follower)
        elif part.log is None:
            part.fail(ErrorCode.unknown_topic_or_partition)

    def _find(self, key: FetchKey) -> ServedPartition | ErrorCode:
        topic = self._topics.get(key.topic)
        if topic is None:
            topic = self._topics[key.topic] = self._topic(key.topic)
        if isinstance(topic, ErrorCode):
            return topic
        return topic.partition(key.partition) or ErrorCode.unknown_topic_or_partition

    def _topic(self, named: str | UUID) -> ServedTopic | ErrorCode:
        """Return a topic, or the error that a broker answers: a name tells nothing to a client that may not read it."""
        if isinstance(named, UUID):
            topic = self.cluster.topics_by_id.get(named)
            if topic is None:
                return ErrorCode.unknown_topic_id
            named = topic.name
        if not self._authorizer.may_read_topic(self._principal, named):
            return ErrorCode.topic_authorization_failed
        return self.cluster.topics.get(named) or ErrorCode.unknown_topic_or_partition
