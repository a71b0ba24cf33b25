"""Handler of OffsetFetch: committed positions, as the store has them at that moment."""

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as FetchOneRequest
from kio.schema.offset_fetch.v7.response import (
    OffsetFetchResponse as FetchOneResponse,
)
from kio.schema.offset_fetch.v7.response import OffsetFetchResponsePartition, OffsetFetchResponseTopic
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest as FetchByNameRequest
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as FetchByNameResponse
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as GroupByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponsePartitions as PartitionsByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseTopics as TopicsByName
from kio.schema.offset_fetch.v10.request import OffsetFetchRequest
from kio.schema.offset_fetch.v10.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.groups.handlers.fetched_offsets import (
    FetchedPartition,
    FetchedTopic,
    OffsetReader,
    WantedTopic,
)
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.request_context import RequestContext

_FIRST_WITH_ERROR: Final = 2
_FIRST_OF_GROUPS: Final = 8
_FIRST_BY_ID: Final = 10


class OffsetFetches:
    """Answers about committed positions. There are no transactions, so that every position is stable (KIP-447)."""

    def __init__(self, reader: OffsetReader) -> None:
        self._reader = reader

    async def fetch(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Return committed positions of one group, or of several."""
        if context.version < _FIRST_OF_GROUPS:
            return await self._fetch_one(request, context)
        if context.version < _FIRST_BY_ID:
            return await self._fetch_by_name(request, context)
        return await self._fetch_by_id(in_version(request, OffsetFetchRequest), context)

    async def _fetch_one(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        one = in_version(request, FetchOneRequest)
        wanted = None
        if one.topics is not None:
            wanted = [WantedTopic(each.name, None, each.partition_indexes) for each in one.topics]
        fetched = await self._reader.read(context, one.group_id, wanted)
        topics = fetched.topics
        if fetched.error and context.version < _FIRST_WITH_ERROR:
            topics = _failed(wanted or (), fetched.error)
        answer = FetchOneResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple(
                OffsetFetchResponseTopic(
                    name=TopicName(topic.name or ""), partitions=tuple(map(_partition, topic.partitions))
                )
                for topic in topics
            ),
            error_code=fetched.error,
        )
        return answer_in_version(request, answer)

    async def _fetch_by_name(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        groups: list[GroupByName] = []
        for group in in_version(request, FetchByNameRequest).groups:
            wanted = None
            if group.topics is not None:
                wanted = [WantedTopic(each.name, None, each.partition_indexes) for each in group.topics]
            fetched = await self._reader.read(context, group.group_id, wanted)
            topics = tuple(
                TopicsByName(
                    name=TopicName(topic.name or ""),
                    partitions=tuple(in_version(_partition(each), PartitionsByName) for each in topic.partitions),
                )
                for topic in fetched.topics
            )
            groups.append(GroupByName(group_id=GroupId(group.group_id), topics=topics, error_code=fetched.error))
        answer = FetchByNameResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))
        return answer_in_version(request, answer)

    async def _fetch_by_id(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        groups: list[OffsetFetchResponseGroup] = []
        for group in request.groups:
            wanted = None
            if group.topics is not None:
                wanted = [WantedTopic(None, each.topic_id, each.partition_indexes) for each in group.topics]
            fetched = await self._reader.read(context, group.group_id, wanted)
            topics = tuple(
                OffsetFetchResponseTopics(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        in_version(_partition(each), OffsetFetchResponsePartitions) for each in topic.partitions
                    ),
                )
                for topic in fetched.topics
            )
            groups.append(
                OffsetFetchResponseGroup(group_id=GroupId(group.group_id), topics=topics, error_code=fetched.error)
            )
        return OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _partition(fetched: FetchedPartition) -> OffsetFetchResponsePartition:
    committed = fetched.committed
    return OffsetFetchResponsePartition(
        partition_index=i32(fetched.partition),
        committed_offset=i64(-1 if committed is None else committed.offset),
        committed_leader_epoch=i32(-1 if committed is None else committed.leader_epoch),
        metadata="" if committed is None else committed.metadata,
        error_code=fetched.error,
    )


def _failed(wanted: Sequence[WantedTopic], error: ErrorCode) -> tuple[FetchedTopic, ...]:
    """Return the error of the group for each partition: version 1 has no other place for it."""
    return tuple(
        FetchedTopic(each.name, None, tuple(FetchedPartition(partition, None, error) for partition in each.partitions))
        for each in wanted
    )
