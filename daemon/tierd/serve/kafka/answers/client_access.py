"""ClientAccess: the topics that one client may see and read, and the operations that an answer tells it of."""

from dataclasses import dataclass
from typing import Final

from tierd.serve.kafka.access import Authorizer
from tierd.serve.kafka.request_context import RequestContext

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
