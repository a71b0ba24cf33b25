"""ClientAccess: the topics that a client may see and read; LogFinder: the logs that it asks for by name."""

from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.access import Authorizer
from tierd.serve.kafka.answers.shown_cluster import live_ids
from tierd.serve.kafka.request_context import RequestContext
from tierd.serve.kafka.served.served_cluster import ServedPartition, ServedPartitions
from tierd.serve.kafka.served.served_log import ServedLog

# Kafka: AclOperation. The operation with the code n is bit n of the operations in an answer.
_READ: Final = 1 << 3
_DESCRIBE: Final = 1 << 8
_DESCRIBE_CONFIGS: Final = 1 << 10

CLUSTER_OPERATIONS: Final = _DESCRIBE | _DESCRIBE_CONFIGS
"""Operations on the cluster that every client may do."""
OPERATIONS_NOT_ASKED: Final = -(2**31)
"""Stands for the operations in an answer to a client that did not ask for them."""


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """Access of the client that sent one request."""

    authorizer: Authorizer
    context: RequestContext

    def may_describe(self, topic: str) -> bool:
        """Return True if the client may know that the topic exists."""
        return self.authorizer.may_describe_topic(self.context.principal, topic)

    def topic_operations(self, topic: str) -> int:
        """Return the operations on a topic that the client may do, as bits; none for a topic that it may not see."""
        if not self.may_describe(topic):
            return 0
        reads = self.authorizer.may_read_topic(self.context.principal, topic)
        return _DESCRIBE | _DESCRIBE_CONFIGS | (_READ if reads else 0)


class LogFinder:
    """Finder of the logs of one request, in the cluster as it was when the request came."""

    def __init__(self, partitions: ServedPartitions, access: ClientAccess) -> None:
        self._partitions = partitions
        self._cluster = partitions.cluster(access.context.listener)
        self._access = access

    @property
    def context(self) -> RequestContext:
        """Return the circumstances of the request."""
        return self._access.context

    def find(self, topic: str, partition: int, *, current_leader_epoch: int) -> ServedLog | ErrorCode:
        """Return the log of a partition.

        Args:
            topic: by name.
            partition: its number.
            current_leader_epoch: latest one that the client knows; -1 where it knows none.
        """
        if not self._access.may_describe(topic):
            return ErrorCode.topic_authorization_failed
        served = self._served(topic, partition)
        if served is None:
            return ErrorCode.unknown_topic_or_partition
        fenced = _fencing(current_leader_epoch, served.leader_epoch)
        if fenced is not ErrorCode.none:
            return fenced
        return self._partitions.log(served.partition) or self._code_without_log(served)

    def _served(self, topic: str, partition: int) -> ServedPartition | None:
        found = self._cluster.topics.get(topic)
        return None if found is None else found.partition(partition)

    def _code_without_log(self, served: ServedPartition) -> ErrorCode:
        """Return the code for a partition that neither this host nor the tier has: another endpoint may have it."""
        is_elsewhere = served.leader_id != self._cluster.node_id and served.leader_id in live_ids(self._cluster)
        return ErrorCode.not_leader_or_follower if is_elsewhere else ErrorCode.leader_not_available


def _fencing(known_by_client: int, known_here: int) -> ErrorCode:
    """Return the error for a client that knows another leader epoch than this daemon (KIP-320)."""
    if known_by_client < 0 or known_here < 0 or known_by_client == known_here:
        return ErrorCode.none
    return ErrorCode.fenced_leader_epoch if known_by_client < known_here else ErrorCode.unknown_leader_epoch
