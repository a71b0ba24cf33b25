"""Handler of OffsetFetch: committed positions, as the store has them at that moment."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as FetchOneRequest
from kio.schema.offset_fetch.v7.request import OffsetFetchRequestTopic
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as FetchOneResponse
from kio.schema.offset_fetch.v7.response import OffsetFetchResponsePartition, OffsetFetchResponseTopic
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest as FetchByNameRequest
from kio.schema.offset_fetch.v9.request import OffsetFetchRequestTopics as TopicsOfGroup
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as FetchByNameResponse
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as GroupByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponsePartitions as PartitionsByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseTopics as TopicsByName
from kio.schema.offset_fetch.v10.request import OffsetFetchRequest, OffsetFetchRequestTopics
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
    FetchedOffsets,
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
MOST_POSITIONS: Final = 50_000
"""Positions in one answer, which is memory; those of its last group may exceed them."""

_Wanted = Sequence[WantedTopic] | None


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
        aside, items = context.turns.aside, context.items
        one = await aside(items, in_version, request, FetchOneRequest)
        wanted = await aside(items, _wanted_by_name, one.topics)
        fetched = await self._reader.read(context, one.group_id, wanted)
        if fetched.error and context.version < _FIRST_WITH_ERROR:
            fetched = replace(fetched, topics=_failed(wanted or (), fetched.error))
        return await aside(fetched.positions, _answer_one, request, fetched)

    async def _fetch_by_name(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        aside, items = context.turns.aside, context.items
        groups = (await aside(items, in_version, request, FetchByNameRequest)).groups
        asked = await aside(items, lambda: {each.group_id: _wanted_by_name(each.topics) for each in groups})
        fetched = await self._fetched(context, asked)
        return await aside(_items(fetched), _answer_by_name, request, fetched)

    async def _fetch_by_id(self, request: OffsetFetchRequest, context: RequestContext) -> ResponsePayload:
        aside, items = context.turns.aside, context.items
        asked = await aside(items, lambda: {each.group_id: _wanted_by_id(each.topics) for each in request.groups})
        fetched = await self._fetched(context, asked)
        return await aside(_items(fetched), _answer_by_id, fetched)

    async def _fetched(self, context: RequestContext, asked: Mapping[GroupId, _Wanted]) -> dict[str, FetchedOffsets]:
        """Return the positions of each group once. Clients ask again for those that would be too many."""
        fetched: dict[str, FetchedOffsets] = {}
        positions = 0
        for group, wanted in asked.items():
            await context.turns.take()
            if positions < MOST_POSITIONS:
                fetched[group] = await self._reader.read(context, group, wanted)
                positions += fetched[group].positions
            else:
                fetched[group] = FetchedOffsets(ErrorCode.coordinator_load_in_progress)
        return fetched


def _wanted_by_name(topics: "Sequence[OffsetFetchRequestTopic | TopicsOfGroup] | None") -> _Wanted:
    return None if topics is None else [WantedTopic(each.name, None, each.partition_indexes) for each in topics]


def _wanted_by_id(topics: Sequence[OffsetFetchRequestTopics] | None) -> _Wanted:
    return None if topics is None else [WantedTopic(None, each.topic_id, each.partition_indexes) for each in topics]


def _items(fetched: Mapping[str, FetchedOffsets]) -> int:
    return len(fetched) + sum(each.positions for each in fetched.values())


def _answer_one(request: RequestPayload, fetched: FetchedOffsets) -> ResponsePayload:
    answer = FetchOneResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=TopicName(topic.name or ""), partitions=tuple(map(_partition, topic.partitions))
            )
            for topic in fetched.topics
        ),
        error_code=fetched.error,
    )
    return answer_in_version(request, answer)


def _answer_by_name(request: RequestPayload, groups: Mapping[str, FetchedOffsets]) -> ResponsePayload:
    answered = tuple(
        GroupByName(
            group_id=GroupId(group),
            topics=tuple(
                TopicsByName(
                    name=TopicName(topic.name or ""),
                    partitions=tuple(in_version(_partition(each), PartitionsByName) for each in topic.partitions),
                )
                for topic in fetched.topics
            ),
            error_code=fetched.error,
        )
        for group, fetched in groups.items()
    )
    return answer_in_version(request, FetchByNameResponse(throttle_time=NO_THROTTLE, groups=answered))


def _answer_by_id(groups: Mapping[str, FetchedOffsets]) -> ResponsePayload:
    answered = tuple(
        OffsetFetchResponseGroup(
            group_id=GroupId(group),
            topics=tuple(
                OffsetFetchResponseTopics(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        in_version(_partition(each), OffsetFetchResponsePartitions) for each in topic.partitions
                    ),
                )
                for topic in fetched.topics
            ),
            error_code=fetched.error,
        )
        for group, fetched in groups.items()
    )
    return OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=answered)


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
