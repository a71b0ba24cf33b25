"""GroupDoor: access of a client to groups, and the topics that it may name."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.access import Authorizer
from tierd.serve.kafka.groups.coordination.endpoint_groups import EndpointGroups, GroupRefusedError
from tierd.serve.kafka.groups.coordination.hosted_group import HostedGroup
from tierd.serve.kafka.request_context import RequestContext
from tierd.serve.kafka.served.served_cluster import ServedCluster, ServedPartitions, ServedTopic

_T = TypeVar("_T")

MAX_GROUP_ID_BYTES: Final = 4096
"""Kafka has no bound but that of a text. A longer id would only fill the store."""


@dataclass(frozen=True, slots=True)
class GroupDoor:
    """Collaborators of all handlers of groups."""

    groups: EndpointGroups
    served: ServedPartitions
    authorizer: Authorizer

    def refusal(self, context: RequestContext, group: str, *, may_be_nameless: bool = False) -> ErrorCode:
        """Return the error of a request to a group; NONE if the client may use it.

        Args:
            context: of the request.
            group: id of the group.
            may_be_nameless: accept the empty id, as Kafka does for commits and what concerns them.
        """
        if self.authorizer.is_quarantined(context):
            return ErrorCode.coordinator_not_available
        if not self.authorizer.may_use_group(context.principal, group):
            return ErrorCode.group_authorization_failed
        if not (group or may_be_nameless) or len(group.encode()) > MAX_GROUP_ID_BYTES:
            return ErrorCode.invalid_group_id
        return ErrorCode.none

    async def find(self, context: RequestContext, group: str, *, may_create: bool = False) -> HostedGroup:
        """Return a group for its members; see ``EndpointGroups.find``.

        Raises:
            GroupRefusedError: the client may not use it, or as ``EndpointGroups.find`` says.
        """
        if error := self.refusal(context, group):
            raise GroupRefusedError(error)
        return await self.groups.find(group, may_create=may_create)

    def cluster(self, context: RequestContext) -> ServedCluster:
        """Return the cluster as the client sees it."""
        return self.served.cluster(context.listener)

    def commit_error(self, context: RequestContext, topic: ServedTopic | None, name: str | None) -> ErrorCode:
        """Return the error of a commit for a topic; NONE if the client may read the topic.

        Args:
            context: of the request.
            topic: None where it is not served.
            name: as the client named it; None where it gave an id.
        """
        known_name = topic.name if topic is not None else name
        if known_name is not None and not self.authorizer.may_read_topic(context.principal, known_name):
            return ErrorCode.topic_authorization_failed
        if topic is not None:
            return ErrorCode.none
        return ErrorCode.unknown_topic_id if name is None else ErrorCode.unknown_topic_or_partition


def served_topic(cluster: ServedCluster, *, name: str | None, topic_id: UUID | None) -> ServedTopic | None:
    """Return a topic by its name, or by its id where the client gave no name; None where it is not served."""
    if name is not None:
        return cluster.topics.get(name)
    return None if topic_id is None else cluster.topics_by_id.get(topic_id)


async def unless_closing(answer: Awaitable[_T], context: RequestContext) -> _T:
    """Return ``answer``, which may take long.

    Raises:
        GroupRefusedError: the endpoint stops; clients look for another coordinator.
    """
    waiting = asyncio.ensure_future(answer)
    closing = asyncio.ensure_future(context.closing.wait())
    try:
        await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise GroupRefusedError(ErrorCode.coordinator_not_available)
        return waiting.result()
    finally:
        for each in (waiting, closing):
            each.cancel()
        await asyncio.gather(waiting, closing, return_exceptions=True)
