"""Handler of OffsetDelete."""

from collections.abc import Callable

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.groups.coordination.endpoint_groups import GroupRefusedError
from tierd.serve.kafka.groups.coordination.hosted_group import HostedGroup
from tierd.serve.kafka.groups.handlers.group_door import GroupDoor, served_topic
from tierd.serve.kafka.groups.protocol.group_checks import CONSUMER_PROTOCOL_TYPE
from tierd.serve.kafka.groups.protocol.group_effects import PlainAnswer
from tierd.serve.kafka.groups.protocol.group_events import DeleteOffsetsRequested
from tierd.serve.kafka.groups.storage.group_offset import OffsetKey
from tierd.serve.kafka.message_versions import NO_THROTTLE, in_version
from tierd.serve.kafka.request_context import RequestContext


class OffsetDeletes:
    """Removals of commits by a person: of groups without members, and of topics that no member subscribes to."""

    def __init__(self, door: GroupDoor) -> None:
        self._door = door

    async def delete(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Remove committed positions; one that is not there is no error."""
        wanted = in_version(request, OffsetDeleteRequest)
        try:
            hosted = await self._door.find(context, wanted.group_id)
        except GroupRefusedError as refused:
            return _refusal(refused.error)
        verdict = await hosted.ask(DeleteOffsetsRequested, PlainAnswer)
        if verdict.error:
            return _refusal(verdict.error)
        is_subscribed = _subscriptions(hosted)
        found = [
            self._checked(context, topic, is_subscribed=is_subscribed(topic.name))
            async for topic in context.turns.pieces(wanted.topics)
        ]
        keys = {key for keys, _ in found for key in keys if key in hosted.writer.claimed.offsets}
        error = await hosted.writer.remove(keys) if keys else ErrorCode.none
        if error:
            return _refusal(error)
        topics = tuple(answer for _, answer in found)
        return OffsetDeleteResponse(error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=topics)

    def _checked(
        self, context: RequestContext, topic: OffsetDeleteRequestTopic, *, is_subscribed: bool
    ) -> tuple[list[OffsetKey], OffsetDeleteResponseTopic]:
        served = served_topic(self._door.cluster(context), name=topic.name, topic_id=None)
        error = self._door.commit_error(context, served, topic.name)
        if not error and is_subscribed:
            error = ErrorCode.group_subscribed_to_topic
        keys: list[OffsetKey] = []
        partitions: list[OffsetDeleteResponsePartition] = []
        for each in topic.partitions:
            is_unknown = served is None or served.partition(each.partition_index) is None
            answered = error or (ErrorCode.unknown_topic_or_partition if is_unknown else ErrorCode.none)
            if not answered and served is not None:
                keys.append(OffsetKey(served.topic_id, each.partition_index))
            partitions.append(
                OffsetDeleteResponsePartition(partition_index=i32(each.partition_index), error_code=answered)
            )
        return keys, OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(partitions))


def _refusal(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error, throttle_time=NO_THROTTLE, topics=())


def _subscriptions(hosted: HostedGroup) -> Callable[[str], bool]:
    """Return the test of a topic: a member subscribes to it, or may, since its subscription cannot be understood."""
    topics = hosted.core.subscriptions()
    if topics is None:
        is_any = hosted.core.protocol_type == CONSUMER_PROTOCOL_TYPE
        return lambda _: is_any
    return topics.__contains__
