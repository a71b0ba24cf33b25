"""Handlers of OffsetCommit and OffsetDelete."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v4.request import OffsetCommitRequest as CommitWithRetentionRequest
from kio.schema.offset_commit.v9.request import OffsetCommitRequest as CommitByNameRequest
from kio.schema.offset_commit.v9.response import OffsetCommitResponse as CommitByNameResponse
from kio.schema.offset_commit.v9.response import OffsetCommitResponsePartition as PartitionByName
from kio.schema.offset_commit.v9.response import OffsetCommitResponseTopic as TopicByName
from kio.schema.offset_commit.v10.request import OffsetCommitRequest
from kio.schema.offset_commit.v10.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.groups.coordination.endpoint_groups import GroupRefusedError
from tierd.serve.kafka.groups.coordination.hosted_group import HostedGroup
from tierd.serve.kafka.groups.handlers.group_door import GroupDoor, served_topic
from tierd.serve.kafka.groups.protocol.group_checks import CONSUMER_PROTOCOL_TYPE
from tierd.serve.kafka.groups.protocol.group_effects import PlainAnswer
from tierd.serve.kafka.groups.protocol.group_events import CommitRequested, DeleteOffsetsRequested
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.request_context import RequestContext
from tierd.serve.kafka.served.served_cluster import ServedTopic

_FIRST_WITHOUT_RETENTION: Final = 5
_FIRST_WITH_GROUP_NOT_FOUND: Final = 9
_FIRST_BY_ID: Final = 10


@dataclass(frozen=True, slots=True)
class _Wish:
    """One partition of a commit: its topic by name or id, and the position."""

    name: str | None
    topic_id: UUID | None
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class OffsetCommits:
    """Commits of members and of simple consumers. A commit is answered when it is durable."""

    def __init__(self, door: GroupDoor) -> None:
        self._door = door

    async def commit(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Commit positions of partitions; each has an answer of its own."""
        aside, items = context.turns.aside, context.items
        if context.version >= _FIRST_BY_ID:
            by_id = in_version(request, OffsetCommitRequest)
            wishes = await aside(items, _wishes_by_id, by_id)
            errors = await self._commit(context, by_id, wishes, expire_ms=None)
            return await aside(items, _response_by_id, by_id, errors)
        by_name = await aside(items, in_version, request, CommitByNameRequest)
        wishes = await aside(items, _wishes_by_name, by_name)
        expire_ms = await aside(items, self._expire_ms, request, context)
        errors = await self._commit(context, by_name, wishes, expire_ms=expire_ms)
        return await aside(items, lambda: answer_in_version(request, _response_by_name(by_name, errors)))

    async def _commit(
        self,
        context: RequestContext,
        request: CommitByNameRequest | OffsetCommitRequest,
        wishes: Sequence[_Wish],
        *,
        expire_ms: int | None,
    ) -> list[ErrorCode]:
        if error := self._door.refusal(context, request.group_id, may_be_nameless=True):
            return [error] * len(wishes)
        errors = [ErrorCode.none] * len(wishes)
        puts: dict[OffsetKey, GroupOffset] = {}
        places: list[int] = []
        checked = enumerate(zip(wishes, self._checked(context, wishes), strict=True))
        async for place, (wish, found) in context.turns.pieces(checked):
            if isinstance(found, ErrorCode):
                errors[place] = found
                continue
            key, topic = found
            now_ms = self._door.groups.clock.now_ms()
            puts[key] = GroupOffset(topic, wish.offset, max(-1, wish.leader_epoch), wish.metadata, now_ms, expire_ms)
            places.append(place)
        if puts:
            error = await self._written(context, request, puts)
            for place in places:
                errors[place] = error
        return errors

    def _checked(self, context: RequestContext, wishes: Iterable[_Wish]) -> Iterable[tuple[OffsetKey, str] | ErrorCode]:
        cluster = self._door.cluster(context)
        topics: dict[str | UUID | None, tuple[ServedTopic | None, ErrorCode]] = {}
        for wish in wishes:
            named = wish.topic_id if wish.name is None else wish.name
            if named not in topics:
                found = served_topic(cluster, name=wish.name, topic_id=wish.topic_id)
                topics[named] = found, self._door.commit_error(context, found, wish.name)
            topic, error = topics[named]
            if error or topic is None:
                yield error
            elif topic.partition(wish.partition) is None:
                yield ErrorCode.unknown_topic_or_partition
            elif len(wish.metadata) > self._door.groups.limits.max_metadata_chars:
                yield ErrorCode.offset_metadata_too_large
            elif wish.offset < -1:
                yield ErrorCode.invalid_request
            else:
                yield OffsetKey(topic.topic_id, wish.partition), topic.name

    async def _written(
        self,
        context: RequestContext,
        request: CommitByNameRequest | OffsetCommitRequest,
        puts: Mapping[OffsetKey, GroupOffset],
    ) -> ErrorCode:
        generation = request.generation_id_or_member_epoch
        try:
            hosted = await self._door.groups.find(request.group_id, may_create=generation < 0)
        except GroupRefusedError as refused:
            is_absent = refused.error is ErrorCode.group_id_not_found
            is_old = context.version < _FIRST_WITH_GROUP_NOT_FOUND
            return ErrorCode.illegal_generation if is_absent and is_old else refused.error
        verdict = await hosted.ask(_event(request, generation), PlainAnswer)
        error = verdict.error or self._bound_error(hosted, puts)
        if error:
            return error
        error = await hosted.writer.commit(puts)
        counters = self._door.groups.counters
        counters.commits += 0 if error else len(puts)
        counters.failed_commits += len(puts) if error else 0
        return error

    def _bound_error(self, hosted: HostedGroup, puts: Mapping[OffsetKey, GroupOffset]) -> ErrorCode:
        groups, offsets = self._door.groups, hosted.writer.claimed.offsets
        metadata_bytes = sum(len(each.metadata.encode()) for each in puts.values())
        if metadata_bytes:
            kept = (each.metadata for key, each in offsets.items() if key not in puts)
            if metadata_bytes + sum(len(each.encode()) for each in kept) > groups.limits.max_metadata_bytes:
                return ErrorCode.offset_metadata_too_large
        replaced_bytes = sum(offsets[key].size_bytes for key in puts if key in offsets)
        added_bytes = sum(each.size_bytes for each in puts.values()) - replaced_bytes
        if added_bytes <= 0:  # a group that goes on is never held up
            return ErrorCode.none
        is_over = len(offsets.keys() | puts.keys()) > groups.limits.max_offsets or not groups.may_commit(added_bytes)
        return ErrorCode.policy_violation if is_over else ErrorCode.none

    def _expire_ms(self, request: RequestPayload, context: RequestContext) -> int | None:
        if context.version >= _FIRST_WITHOUT_RETENTION:
            return None
        retention = in_version(request, CommitWithRetentionRequest).retention_time
        if retention < timedelta(0):
            return None
        return self._door.groups.clock.now_ms() + retention // timedelta(milliseconds=1)


def _wishes_by_id(request: OffsetCommitRequest) -> list[_Wish]:
    return [
        _Wish(None, topic.topic_id, each.partition_index, each.committed_offset, each.committed_leader_epoch,
              each.committed_metadata or "")
        for topic in request.topics
        for each in topic.partitions
    ]  # fmt: skip


def _wishes_by_name(request: CommitByNameRequest) -> list[_Wish]:
    return [
        _Wish(topic.name, None, each.partition_index, each.committed_offset, each.committed_leader_epoch,
              each.committed_metadata or "")
        for topic in request.topics
        for each in topic.partitions
    ]  # fmt: skip


def _event(request: CommitByNameRequest | OffsetCommitRequest, generation: int) -> Callable[[int], CommitRequested]:
    return lambda waiter: CommitRequested(
        waiter=waiter,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=generation,
    )


def _response_by_name(request: CommitByNameRequest, errors: Iterable[ErrorCode]) -> CommitByNameResponse:
    following = iter(errors)
    return CommitByNameResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicByName(
                name=TopicName(topic.name),
                partitions=tuple(
                    PartitionByName(partition_index=i32(each.partition_index), error_code=next(following))
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _response_by_id(request: OffsetCommitRequest, errors: Iterable[ErrorCode]) -> OffsetCommitResponse:
    following = iter(errors)
    return OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=i32(each.partition_index), error_code=next(following))
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


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
